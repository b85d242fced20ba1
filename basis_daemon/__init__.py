"""The basis daemon as a library: open a repository, run a conversation in it, with no server.

    async with await Workspace.open(".") as workspace:
        run = workspace.prepare()
        report = await run.send("What does this repository do?", emit=print, approver=DenyAll())

Names are imported from where they are defined when they are first used, so `import basis_daemon` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basis_daemon.errors import BasisError as BasisError
    from basis_daemon.runtime.cancel import CancelSignal as CancelSignal
    from basis_daemon.runtime.cancel import StopSignal as StopSignal
    from basis_daemon.runtime.limits import TurnOptions as TurnOptions
    from basis_daemon.runtime.permissions import ApprovalAnswer as ApprovalAnswer
    from basis_daemon.runtime.permissions import ApprovalRequest as ApprovalRequest
    from basis_daemon.runtime.permissions import Approver as Approver
    from basis_daemon.runtime.providers.base import RequestOptions as RequestOptions
    from basis_daemon.runtime.providers.base import ResponsesOptions as ResponsesOptions
    from basis_daemon.runtime.providers.base import SessionHints as SessionHints
    from basis_daemon.runtime.reports import RunReport as RunReport
    from basis_daemon.runtime.runtime import Runtime as Runtime
    from basis_daemon.runtime.runtime import RuntimeBuilder as RuntimeBuilder
    from basis_daemon.runtime.tools.base import FunctionTool as FunctionTool
    from basis_daemon.runtime.tools.base import ToolContext as ToolContext
    from basis_daemon.runtime.tools.base import ToolOutput as ToolOutput
    from basis_daemon.runtime.tools.base import ToolSpec as ToolSpec
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
    from basis_daemon.workspace.spec import RunSpec as RunSpec
    from basis_daemon.workspace.workspace import Workspace as Workspace

__version__ = "0.1.0"

_HOMES = {
    "errors": ("BasisError",),
    "runtime.cancel": ("CancelSignal", "StopSignal"),
    "runtime.limits": ("TurnOptions",),
    "runtime.permissions": ("ApprovalAnswer", "ApprovalRequest", "Approver"),
    "runtime.providers.base": ("RequestOptions", "ResponsesOptions", "SessionHints"),
    "runtime.runtime": ("Runtime", "RuntimeBuilder"),
    "runtime.tools.base": ("FunctionTool", "ToolContext", "ToolOutput", "ToolSpec"),
    "workspace.agents_md": ("ContextConfig",),
    "workspace.approval": ("AllowAll", "DenyAll"),
    "workspace.budget": ("BudgetPool",),
    "workspace.builder": ("WorkspaceBuilder",),
    "workspace.config": ("Config",),
    "workspace.prompt": ("Append", "Replace"),
    "runtime.reports": ("OutputFailure", "OutputReport", "RunReport"),
    "workspace.roster": ("ToolRoster",),
    "workspace.run": ("PreparedRun",),
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
