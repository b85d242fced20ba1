"""Using the library in tests the way an embedder does: an approver that records, and turns as lists of events."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio

from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.permissions import ApprovalAnswer, ApprovalRequest
from basis_daemon.runtime.reports import RunReport
from basis_daemon.runtime.runtime import Runtime, RuntimeBuilder
from basis_daemon.workspace.builder import WorkspaceBuilder
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.events import AnyEvent
from support.model_server import ModelServer, Scripted
from support.workspaces import bounded, sample_repository

E = TypeVar("E", bound=AnyEvent)


@dataclass
class Person:
    """Answers every question alike and remembers what it was asked."""

    answer: ApprovalAnswer = field(default_factory=lambda: ApprovalAnswer(allow=True))
    asked: list[ApprovalRequest] = field(default_factory=list[ApprovalRequest])

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return self.answer


@dataclass
class Told:
    """A finished turn: its report and everything its sink was told."""

    report: RunReport
    events: list[AnyEvent]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        (event,) = self.of(kind)
        return event


async def say(run: PreparedRun, prompt: str, person: Person | None = None, options: TurnOptions | None = None) -> Told:
    """Send `prompt` and wait for the turn's end; everything asked is allowed unless `person` says otherwise."""
    events: list[AnyEvent] = []
    report = await run.send(prompt, emit=events.append, approver=person or Person(), options=options)
    return Told(report, events)


@dataclass(frozen=True)
class Scene:
    """A sample repository, opened, with a scripted model behind it."""

    repo: Path
    store: Path
    server: ModelServer
    workspace: Workspace


@asynccontextmanager
async def scene(
    directory: Path,
    *script: Scripted,
    files: Mapping[str, str | dict[str, object]] | None = None,
    model: str | None = "scripted",
    models: Iterable[str | Mapping[str, object]] = ("scripted",),
    shape: Callable[[WorkspaceBuilder], WorkspaceBuilder] = lambda builder: builder,
) -> AsyncGenerator[Scene]:
    """Make the repository in `directory`, serve `script`, open the workspace as `shape` has it. Bounded in time."""
    repo, store = sample_repository(directory / "repo", files), directory / "store"
    with anyio.fail_after(20):
        async with (
            ModelServer(*script, models=models) as server,
            await shape(with_model_server(repo, server.base_url, store, model=model)).open() as workspace,
        ):
            yield Scene(repo, store, server, workspace)


def with_model_server(root: Path, base_url: str, store: Path, *, model: str | None = "scripted") -> WorkspaceBuilder:
    """A builder for `root` that speaks to a scripted model and keeps conversations in `store`."""
    builder = bounded(Workspace.builder(root), {"BASIS_BASE_URL": base_url, "BASIS_API_KEY": "sk-canary-0001"})
    builder = builder.with_runtime_builder(stored(store))
    return builder.with_model(model) if model else builder


def stored(store: Path) -> RuntimeBuilder:
    """A runtime that keeps conversations in `store`."""
    return Runtime.builder().with_store_dir(store)


def files_below(root: Path, *, skip: Callable[[Path], bool] = lambda path: False) -> dict[str, bytes]:
    """Every file below `root` and its bytes."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file() and not skip(path)
    }
