"""Commands that go on after the call that started them (runtime.md 10.3).

Owns the tasks of one runtime: their ids, limits, output and end, and which results their agents have not been told of.
How results get into a conversation: `background_results.py`. Needs a running event loop; everything happens on it.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal

from basis_daemon.errors import BasisError, UsageError
from basis_daemon.processes import CommandOutput, CommandRequest, Executor
from basis_daemon.runtime.command_text import outcome, rendered, titled
from basis_protocol.events import AnyEvent, TaskUpdated

logger = logging.getLogger(__name__)

BackgroundStatus = Literal["running", "finished", "failed", "interrupted"]
BackgroundEvent = Literal["background_task_started", "background_task_finished"]

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
"""Kept of each stream; what is longer loses its middle."""

MAX_PREVIEW_CHARS = 500
MAX_LIVE_CHARS = 64 * 1024
"""Of the newest output of a running task, for whoever looks at it; and of all output of an ended one in memory."""

KEPT_TASKS = 200
"""Ended tasks a runtime can still tell of."""


class TooManyBackgroundTasks(BasisError):
    """BT-3: the agent has as many running as its policy allows."""

    kind = "too_many_background_tasks"


class NoSuchTask(UsageError):
    kind = "no_such_task"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"there is no background task {task_id!r}")


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """One command as it stands (CO-15). `output_preview` is its first and last output; `result_id` names all of it in
    the agent's result store."""

    id: str
    agent_id: str
    command: str
    cwd: Path
    status: BackgroundStatus = "running"
    outcome: str | None = None
    """How it ended, e.g. `exit status 1 after 2.0 s`."""
    output_preview: str | None = None
    result_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskWatch:
    """Whoever has to know of an agent's tasks. Nothing these raise changes a task."""

    emit: Callable[[AnyEvent], None] = lambda event: None
    keep: Callable[[str], str] | None = None
    """Keep all of an output, blocking; returns its id. `None` where nothing may be kept."""
    observe: Callable[[BackgroundEvent, BackgroundTask], None] = lambda kind, task: None


@dataclass(slots=True)
class _Running:
    task: BackgroundTask
    watch: TaskWatch
    lines: deque[str] = field(default_factory=deque[str])
    chars: int = 0
    text: str | None = None
    work: asyncio.Task[None] | None = None
    is_ended_on_request: bool = False

    def hear(self, line: str) -> None:
        self.lines.append(line)
        self.chars += len(line) + 1
        while self.chars > MAX_LIVE_CHARS:
            self.chars -= len(self.lines.popleft()) + 1


class BackgroundTasks:
    """The background commands of one runtime. Reads may come from any task of its loop."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._numbers = count(1)
        self._tasks: dict[str, _Running] = {}
        self._untold: dict[str, list[str]] = {}
        """Ids of ended tasks by agent, oldest first, until their results are part of the conversation."""
        self._is_closed = False

    # --- starting and ending -----------------------------------------------------------------------------------------

    def start(self, request: CommandRequest, *, agent_id: str, limit: int, watch: TaskWatch) -> BackgroundTask:
        """Start a command and return at once. Raises `TooManyBackgroundTasks`."""
        if self._is_closed:
            raise UsageError("the runtime is being closed; nothing new is started")
        running = sum(task.status == "running" for task in self.tasks(agent_id))
        if running >= limit:
            raise TooManyBackgroundTasks(
                f"{running} commands run in the background already, which is as many as this session may have; "
                "wait until one has ended"
            )
        # The counter alone would begin anew with every process; ids of a store must never be given out twice (D-73).
        task_id = f"bg-{next(self._numbers)}-{os.urandom(4).hex()}"
        entry = _Running(BackgroundTask(task_id, agent_id, request.command, request.cwd), watch)
        self._tasks[task_id] = entry
        _tell(entry, "spawned")
        _observe(entry, "background_task_started")
        entry.work = asyncio.get_running_loop().create_task(self._run(entry, request), name=f"background {task_id}")
        entry.work.add_done_callback(lambda work: self._cut_short(entry))
        self._forget_oldest()
        return entry.task

    async def end(self, task_id: str) -> bool:
        """End a task with all it has started. False if it had ended. Raises `NoSuchTask`."""
        entry = self._entry(task_id)
        if entry.work is None or entry.work.done():
            return False
        entry.is_ended_on_request = True
        entry.work.cancel()
        await asyncio.wait([entry.work])
        return True

    async def aclose(self) -> None:
        """End all that runs (RT-18). Idempotent."""
        self._is_closed = True
        works = [entry.work for entry in self._tasks.values() if entry.work is not None and not entry.work.done()]
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works)

    # --- looking -----------------------------------------------------------------------------------------------------

    def tasks(self, agent_id: str | None = None) -> Sequence[BackgroundTask]:
        """Tasks of one agent, or of all, oldest first."""
        return [each.task for each in self._tasks.values() if agent_id in (None, each.task.agent_id)]

    def get(self, task_id: str, *, agent_id: str | None = None) -> BackgroundTask:
        """Raises `NoSuchTask`, also for a task of another agent than the one named."""
        return self._entry(task_id, agent_id).task

    def output(self, task_id: str, *, agent_id: str | None = None) -> str:
        """What it has printed: the newest of it while it runs, its beginning and end afterwards. Raises
        `NoSuchTask`."""
        entry = self._entry(task_id, agent_id)
        return "\n".join(entry.lines) if entry.text is None else entry.text

    async def wait(self, task_id: str) -> BackgroundTask:
        """The task once it has ended. Raises `NoSuchTask`."""
        entry = self._entry(task_id)
        if entry.work is not None:
            await asyncio.wait([entry.work])
        return entry.task

    # --- telling their agents ----------------------------------------------------------------------------------------

    def take_results(self, agent_id: str) -> Sequence[BackgroundTask]:
        """Ended tasks the agent has not been told of, oldest first. They are not handed out again unless they are put
        back (CO-17)."""
        return [self._tasks[task_id].task for task_id in self._untold.pop(agent_id, []) if task_id in self._tasks]

    def put_back(self, agent_id: str, task_ids: Sequence[str]) -> None:
        """The conversation did not keep them after all: they come first the next time."""
        if task_ids:
            self._untold[agent_id] = [*task_ids, *self._untold.get(agent_id, [])]

    def has_results(self, agent_id: str) -> bool:
        return bool(self._untold.get(agent_id))

    # -----------------------------------------------------------------------------------------------------------------

    async def _run(self, entry: _Running, request: CommandRequest) -> None:
        request = replace(request, on_output=entry.hear, max_output_bytes_per_stream=MAX_OUTPUT_BYTES)
        try:
            output = await self._executor.run(request)
        except BasisError as error:
            self._settle(entry, "failed", str(error), "", None)
        except Exception as error:  # an executor of the host's may fail in any way
            logger.exception("background task %s failed", entry.task.id)
            self._settle(entry, "failed", f"it could not be run: {type(error).__name__}", "", None)
        else:
            await self._finish(entry, output)

    async def _finish(self, entry: _Running, output: CommandOutput) -> None:
        text = await asyncio.to_thread(rendered, output)
        result_id = None
        if entry.watch.keep is not None and len(text) > MAX_PREVIEW_CHARS:
            try:
                result_id = await asyncio.to_thread(entry.watch.keep, text)
            except BasisError as error:
                logger.warning("the output of background task %s could not be kept: %s", entry.task.id, error)
        status: BackgroundStatus = "finished" if output.succeeded else "failed"
        self._settle(entry, status, outcome(output), text, result_id)

    def _cut_short(self, entry: _Running) -> None:
        """Whatever cancelled the work, and when: it has ended, and that is told (SE-10)."""
        if entry.task.status == "running":
            why = "ended on request" if entry.is_ended_on_request else "ended with the runtime"
            self._settle(entry, "interrupted", why, "\n".join(entry.lines), None)

    def _settle(self, entry: _Running, status: BackgroundStatus, how: str, text: str, result_id: str | None) -> None:
        entry.text = _ends(text, MAX_LIVE_CHARS)
        entry.lines.clear()
        preview = _ends(text, MAX_PREVIEW_CHARS)
        entry.task = replace(
            entry.task, status=status, outcome=how, output_preview=preview or None, result_id=result_id
        )
        self._untold.setdefault(entry.task.agent_id, []).append(entry.task.id)
        _observe(entry, "background_task_finished")
        _tell(entry, "finished" if status == "finished" else "failed")

    def _entry(self, task_id: str, agent_id: str | None = None) -> _Running:
        entry = self._tasks.get(task_id)
        if entry is None or agent_id not in (None, entry.task.agent_id):
            raise NoSuchTask(task_id)
        return entry

    def _forget_oldest(self) -> None:
        untold = {task_id for ids in self._untold.values() for task_id in ids}
        ended = [key for key, each in self._tasks.items() if each.task.status != "running" and key not in untold]
        for task_id in ended[: max(len(ended) - KEPT_TASKS, 0)]:
            del self._tasks[task_id]


def _tell(entry: _Running, status: Literal["spawned", "finished", "failed"]) -> None:
    task = entry.task
    event = TaskUpdated(
        task_id=task.id, kind="background_task", status=status, title=titled(task.command), detail=task.outcome
    )
    try:
        entry.watch.emit(event)
    except Exception:
        logger.exception("nobody could be told of background task %s", task.id)


def _observe(entry: _Running, kind: BackgroundEvent) -> None:
    try:
        entry.watch.observe(kind, entry.task)
    except Exception:
        logger.exception("an observer failed on background task %s", entry.task.id)


def _ends(text: str, max_chars: int) -> str:
    """The first and the last part of a text within `max_chars` (CO-16)."""
    if len(text) <= max_chars:
        return text
    mark = f"\n[... {len(text)} characters in all ...]\n"
    room = max_chars - len(mark)
    return text[: room // 2] + mark + text[-(room - room // 2) :]


@dataclass(frozen=True, slots=True)
class AgentBackground:
    """The background as one agent's calls have it: its own tasks only."""

    all_tasks: BackgroundTasks
    agent_id: str
    watch: TaskWatch = TaskWatch()

    def start(self, request: CommandRequest, *, limit: int) -> BackgroundTask:
        """Raises `TooManyBackgroundTasks`."""
        return self.all_tasks.start(request, agent_id=self.agent_id, limit=limit, watch=self.watch)

    def tasks(self) -> Sequence[BackgroundTask]:
        return self.all_tasks.tasks(self.agent_id)

    def get(self, task_id: str) -> BackgroundTask:
        """Raises `NoSuchTask`."""
        return self.all_tasks.get(task_id, agent_id=self.agent_id)

    def output(self, task_id: str) -> str:
        """Raises `NoSuchTask`."""
        return self.all_tasks.output(task_id, agent_id=self.agent_id)
