"""The tools a runtime has: file tools by profile, and those that are the same for all (4.10, C-17)."""

from typing import Literal

from basis_daemon.runtime.tools.background import BackgroundRunTool, CheckBackgroundTool
from basis_daemon.runtime.tools.base import Tool
from basis_daemon.runtime.tools.batch import FilesTool
from basis_daemon.runtime.tools.edit import EditTool, WriteTool
from basis_daemon.runtime.tools.files import LsTool, ReadTool
from basis_daemon.runtime.tools.search import GlobTool, GrepTool
from basis_daemon.runtime.tools.shell import ShellTool
from basis_daemon.runtime.tools.task import TaskTool

FileToolProfile = Literal["none", "batched", "split", "both"]
"""No file tools; `files` alone; one tool per thing to do; or all of them."""


def split_file_tools() -> list[Tool]:
    """`read`, `ls`, `grep`, `glob`, `write`, `edit`: one tool per thing to do (4.10)."""
    return [ReadTool(), LsTool(), GrepTool(), GlobTool(), WriteTool(), EditTool()]


def file_tools(profile: FileToolProfile) -> list[Tool]:
    """The tools of a profile."""
    match profile:
        case "none":
            return []
        case "batched":
            return [FilesTool()]
        case "split":
            return split_file_tools()
        case "both":
            return [FilesTool(), *split_file_tools()]


def runtime_tools() -> list[Tool]:
    """Commands, waited for or not, and subagents. Workspaces offer `spawn` in their place."""
    return [ShellTool(), BackgroundRunTool(), CheckBackgroundTool(), TaskTool()]
