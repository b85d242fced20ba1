"""How one conversation differs from what its runtime says. Data only; `agent_handle.py` is the conversation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from basis_daemon.runtime.approvals import Approver
from basis_daemon.runtime.limits import ProviderRetry
from basis_daemon.runtime.permissions import Authorizer
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.prices import Pricing, unpriced
from basis_daemon.runtime.providers.base import Effort, RequestOptions
from basis_daemon.runtime.tools.paging import ToolResultPaging
from basis_daemon.runtime.tools.profile import ToolProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """How one conversation differs from what its runtime says (RT-27). Only effort and name are stored with it: the
    rest is stated again when it is resumed (RT-28)."""

    base_dir: Path | None = None
    """Where its tools work; unset is where it worked before, or this process's directory."""
    system: str | None = None
    effort: Effort | None = None
    tools: Callable[[str], bool] = field(default_factory=ToolProfile.all)
    """Which of the tools there are it is offered (TL-12)."""
    hide_denied_tools: bool = False
    """Whether tools its policy refuses anyway are left out (TL-13)."""
    tool_result_paging: ToolResultPaging | None = None
    """How long results are handed out in pages; unset, they are only shortened (TL-37)."""
    audience: str | None = None
    """Whose tools and hooks it gets besides everyone's. A label of the host's, not a permission (RT-41)."""
    policy: RuntimePolicy | None = None
    """Replaces the runtime's wholesale (RT-27)."""
    authorizer: Authorizer | None = None
    """Replaces the runtime's (SE-5)."""
    approver: Approver | None = None
    """Who answers what is asked; unset, questions wait for `AgentHandle.permissions`."""
    permission_timeout_s: float | None = None
    """Seconds such a question waits before it is refused; unset is for as long as the turn goes on (SE-17)."""
    project_id: str | None = None
    """Which project's remembered answers hold, if any do (SE-20)."""
    runtime_identifier: str | None = None
    """Its tag in lists; unset is what it has, or the runtime's."""
    environment: Mapping[str, str] | None = None
    """What commands are given besides the policy's own list."""
    request_options: RequestOptions | None = None
    retry: ProviderRetry = field(default_factory=ProviderRetry)
    """For turns that are given no options of their own."""
    pricing: Pricing = unpriced
    keep_subagents: bool = False
