"""The tools every runtime has."""

from basis_daemon.runtime.tools.base import Tool
from basis_daemon.runtime.tools.edit import EditTool, WriteTool
from basis_daemon.runtime.tools.files import LsTool, ReadTool
from basis_daemon.runtime.tools.search import GlobTool, GrepTool


def split_file_tools() -> list[Tool]:
    """`read`, `ls`, `grep`, `glob`, `write`, `edit`: one tool per thing to do (4.10)."""
    return [ReadTool(), LsTool(), GrepTool(), GlobTool(), WriteTool(), EditTool()]
