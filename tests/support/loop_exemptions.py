"""Where our code may make a blocking call on the event loop, and why that is right.

Read by `tests/conftest.py`. An entry needs a sentence that would convince a reviewer: a bounded, tiny call that has to
be finished before the next line runs. Anything that walks a tree, waits for a process or syncs a disk goes to a thread.
"""

MAY_BLOCK: tuple[tuple[str, frozenset[str], str], ...] = (
    (
        "basis_daemon/runtime/store/log.py",
        frozenset({"append", "save"}),
        "one short write to an open file: the round must be in the file before the next one starts (architecture.md 5)",
    ),
    (
        "basis_daemon/runtime/store/files.py",
        frozenset({"create"}),
        "a few names in a directory, nothing synced: a conversation exists when its first prompt is called accepted",
    ),
    (
        "basis_daemon/server/journal.py",
        frozenset({"flush", "_flush"}),
        "one short write of the batch that was collected in memory; syncing it is the group-commit thread's work",
    ),
    (
        "basis_daemon/runtime/runtime.py",
        frozenset({"_here"}),
        "the kernel is asked for the working directory: no disk is read",
    ),
    (
        "basis_daemon/processes/table.py",
        frozenset({"_start"}),
        "starting a child, as the loop's own subprocess calls do: the pipe that is read says whether exec worked",
    ),
    (
        "basis_daemon/processes/children.py",
        frozenset({"kill_nowait"}),
        "the last resort of a cancelled ending: a handful of reads from /proc, which is memory",
    ),
    (
        "logging/__init__.py",
        frozenset({"emit"}),
        "one short write a line, in place, so that the last words of a daemon that is killed are in its log",
    ),
)
"""File (end of its path), functions on the stack below which anything is allowed, the reason."""
