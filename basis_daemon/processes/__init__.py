"""Starting, streaming and ending process trees. The only place that starts a process.

Owns the shell, the process groups, the output caps and the table of running children. Does not decide whether a
command may run: see `runtime/policy.py` and `runtime/permissions.py`.
"""

from basis_daemon.processes.children import Child, ChildLabel
from basis_daemon.processes.commands import CommandNotStarted, CommandOutput, CommandRequest, Executor
from basis_daemon.processes.leftovers import end_leftovers
from basis_daemon.processes.local import LocalExecutor
from basis_daemon.processes.programs import ProgramOutput, run_program
from basis_daemon.processes.table import PIPE, ProcessTable, RunningProcess

__all__ = [
    "PIPE",
    "Child",
    "ChildLabel",
    "CommandNotStarted",
    "CommandOutput",
    "CommandRequest",
    "Executor",
    "LocalExecutor",
    "ProcessTable",
    "ProgramOutput",
    "RunningProcess",
    "end_leftovers",
    "run_program",
]
