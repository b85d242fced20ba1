"""What a program is told of a turn that has ended (workspace.md 4.3, 4.7). Data only."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from basis_daemon.errors import BasisError, RunFailure
from basis_daemon.runtime.messages import Json
from basis_protocol.events import StoppedBy, TurnStatus, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a turn ended (TN-3). `sink_error` is what the event sink raised, if it did; the turn went on without it."""

    turn_id: str
    status: TurnStatus
    model: str
    provider: str
    final_message: str | None = None
    error: str | None = None
    stopped_by: StoppedBy | None = None
    usage: Usage = field(default_factory=Usage)
    output: Json = None
    """The value a typed turn ended with."""
    failure: BasisError | None = None
    """What the turn failed with, where that is known: its `kind` and `category` say what to do."""
    sink_error: Exception | None = None

    @property
    def succeeded(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class OutputReport(Generic[T]):
    """A typed turn's value and its report, whose `final_message` is `None` (OU-2)."""

    value: T
    report: RunReport


class OutputFailure(RunFailure):
    """A typed turn that ended without its value (OU-3). `report` says how; the cause, where there is one, is what the
    turn failed with: `OutputMissing`, `OutputMismatch`, or any other failure."""

    kind = "output_failed"

    def __init__(self, report: RunReport) -> None:
        super().__init__(report.error or f"the turn ended without its answer ({report.status})")
        self.report = report
