"""Every handler by method. What is missing here answers `method not found`."""

from collections.abc import Mapping

from basis_daemon.server.methods import (
    asks,
    auth,
    daemon,
    drafts,
    files,
    models,
    rules,
    sessions,
    tasks,
    turns,
    workspaces,
)
from basis_daemon.server.router import Handler, InstantHandler
from basis_daemon.server.services import Services

INSTANT: Mapping[str, InstantHandler[Services]] = daemon.INSTANT

HANDLERS: Mapping[str, Handler[Services]] = {
    **daemon.HANDLERS,
    **workspaces.HANDLERS,
    **sessions.HANDLERS,
    **drafts.HANDLERS,
    **turns.HANDLERS,
    **tasks.HANDLERS,
    **asks.HANDLERS,
    **rules.HANDLERS,
    **models.HANDLERS,
    **auth.HANDLERS,
    **files.HANDLERS,
}
