"""What handlers work with: the daemon's parts, built once in `app.py`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from basis_daemon.paths import Paths
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.documents import Documents
from basis_daemon.server.drafts import Drafts
from basis_daemon.server.hub import Hub
from basis_daemon.server.runtime_source import RuntimeSource
from basis_daemon.server.work import Work
from basis_daemon.server.workspaces import Workspaces
from basis_daemon.workspace.credential_store import CredentialStore
from basis_daemon.workspace.model_catalogue import ModelCatalogue
from basis_protocol.lifecycle import DaemonInfo


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything a handler may reach. `stop` begins the end of the daemon; `client_count` is how many are connected."""

    info: DaemonInfo
    paths: Paths
    started_at: float
    work: Work
    runtime: RuntimeSource
    hub: Hub
    workspaces: Workspaces
    announcer: Announcer
    documents: Documents
    credentials: CredentialStore
    catalogue: ModelCatalogue
    client_count: Callable[[], int]
    stop: Callable[[str], None]
    drafts: Drafts = field(default_factory=Drafts)
