"""The basis daemon as a library, with no server: open a repository and run a conversation in it,

    async with await Workspace.open(".") as workspace:
        run = workspace.prepare()
        report = await run.send("What does this repository do?", emit=print, approver=DenyAll())

or have an agent of your own that knows of no repository:

    async with Runtime.builder().with_provider("openai", key).build() as runtime:
        report = await runtime.spawn("assistant", await runtime.resolve_model()).send("Hello")

`basis_daemon.testing` has the runtime for your tests.

Names are imported from where they are defined when they are first used, so `import basis_daemon` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basis_daemon.errors import BasisError as BasisError
    from basis_daemon.runtime.agent_config import AgentConfig as AgentConfig
    from basis_daemon.runtime.agent_handle import AgentHandle as AgentHandle
    from basis_daemon.runtime.approvals import ApprovalAnswer as ApprovalAnswer
    from basis_daemon.runtime.approvals import ApprovalRequest as ApprovalRequest
    from basis_daemon.runtime.approvals import Approver as Approver
    from basis_daemon.runtime.cancel import CancelSignal as CancelSignal
    from basis_daemon.runtime.cancel import StopSignal as StopSignal
    from basis_daemon.runtime.feed import Lagged as Lagged
    from basis_daemon.runtime.feed import Snapshot as Snapshot
    from basis_daemon.runtime.limits import ProviderRetry as ProviderRetry
    from basis_daemon.runtime.limits import TurnOptions as TurnOptions
    from basis_daemon.runtime.messages import image_bytes as image_bytes
    from basis_daemon.runtime.messages import image_url as image_url
    from basis_daemon.runtime.permissions import Authorization as Authorization
    from basis_daemon.runtime.permissions import AuthorizationRequest as AuthorizationRequest
    from basis_daemon.runtime.permissions import Authorizer as Authorizer
    from basis_daemon.runtime.policy import RuntimePolicy as RuntimePolicy
    from basis_daemon.runtime.providers.base import ModelInfo as ModelInfo
    from basis_daemon.runtime.providers.base import RequestOptions as RequestOptions
    from basis_daemon.runtime.providers.base import ResponsesOptions as ResponsesOptions
    from basis_daemon.runtime.providers.base import SessionHints as SessionHints
    from basis_daemon.runtime.providers.selection import ModelSelector as ModelSelector
    from basis_daemon.runtime.reports import OutputFailure as OutputFailure
    from basis_daemon.runtime.reports import OutputReport as OutputReport
    from basis_daemon.runtime.reports import RunReport as RunReport
    from basis_daemon.runtime.runtime import Runtime as Runtime
    from basis_daemon.runtime.runtime import RuntimeBuilder as RuntimeBuilder
    from basis_daemon.runtime.skills import SkillInfo as SkillInfo
    from basis_daemon.runtime.tools.base import CallPreparation as CallPreparation
    from basis_daemon.runtime.tools.base import FunctionTool as FunctionTool
    from basis_daemon.runtime.tools.base import Tool as Tool
    from basis_daemon.runtime.tools.base import ToolContext as ToolContext
    from basis_daemon.runtime.tools.base import ToolOutput as ToolOutput
    from basis_daemon.runtime.tools.base import default_preparation as default_preparation
    from basis_daemon.runtime.tools.functions import tool as tool
    from basis_daemon.runtime.tools.paging import ToolResultPaging as ToolResultPaging
    from basis_daemon.runtime.tools.profile import ToolProfile as ToolProfile
    from basis_daemon.runtime.tools.spec import ToolSpec as ToolSpec
    from basis_daemon.runtime.tools.tool_error import ToolError as ToolError
    from basis_daemon.runtime.typed_output import Accept as Accept
    from basis_daemon.runtime.typed_output import OutputSpec as OutputSpec
    from basis_daemon.runtime.typed_output import Reject as Reject
    from basis_daemon.workspace.agents_md import ContextConfig as ContextConfig
    from basis_daemon.workspace.approval import AllowAll as AllowAll
    from basis_daemon.workspace.approval import DenyAll as DenyAll
    from basis_daemon.workspace.budget import BudgetPool as BudgetPool
    from basis_daemon.workspace.builder import WorkspaceBuilder as WorkspaceBuilder
    from basis_daemon.workspace.config import Config as Config
    from basis_daemon.workspace.prompt import Append as Append
    from basis_daemon.workspace.prompt import Replace as Replace
    from basis_daemon.workspace.roster import ToolRoster as ToolRoster
    from basis_daemon.workspace.run import PreparedRun as PreparedRun
    from basis_daemon.workspace.skills import SkillsConfig as SkillsConfig
    from basis_daemon.workspace.spec import RunSpec as RunSpec
    from basis_daemon.workspace.workspace import Workspace as Workspace

__version__ = "0.1.0"

_HOMES = {
    "errors": ("BasisError",),
    "runtime.agent_config": ("AgentConfig",),
    "runtime.agent_handle": ("AgentHandle",),
    "runtime.approvals": ("ApprovalAnswer", "ApprovalRequest", "Approver"),
    "runtime.cancel": ("CancelSignal", "StopSignal"),
    "runtime.feed": ("Lagged", "Snapshot"),
    "runtime.limits": ("ProviderRetry", "TurnOptions"),
    "runtime.messages": ("image_bytes", "image_url"),
    "runtime.permissions": ("Authorization", "AuthorizationRequest", "Authorizer"),
    "runtime.policy": ("RuntimePolicy",),
    "runtime.providers.base": ("ModelInfo", "RequestOptions", "ResponsesOptions", "SessionHints"),
    "runtime.providers.selection": ("ModelSelector",),
    "runtime.reports": ("OutputFailure", "OutputReport", "RunReport"),
    "runtime.runtime": ("Runtime", "RuntimeBuilder"),
    "runtime.skills": ("SkillInfo",),
    "runtime.tools.base": (
        "CallPreparation",
        "FunctionTool",
        "Tool",
        "ToolContext",
        "ToolOutput",
        "default_preparation",
    ),
    "runtime.tools.functions": ("tool",),
    "runtime.tools.paging": ("ToolResultPaging",),
    "runtime.tools.profile": ("ToolProfile",),
    "runtime.tools.spec": ("ToolSpec",),
    "runtime.tools.tool_error": ("ToolError",),
    "runtime.typed_output": ("Accept", "OutputSpec", "Reject"),
    "workspace.agents_md": ("ContextConfig",),
    "workspace.approval": ("AllowAll", "DenyAll"),
    "workspace.budget": ("BudgetPool",),
    "workspace.builder": ("WorkspaceBuilder",),
    "workspace.config": ("Config",),
    "workspace.prompt": ("Append", "Replace"),
    "workspace.roster": ("ToolRoster",),
    "workspace.run": ("PreparedRun",),
    "workspace.skills": ("SkillsConfig",),
    "workspace.spec": ("RunSpec",),
    "workspace.workspace": ("Workspace",),
}
"""Module below this package, and the names it defines that are the package's own."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOME_OF))
