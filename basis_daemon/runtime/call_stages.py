"""One tool call as data: planned, on its way, ended.

Owns nothing that happens: `call_pipeline.py` moves it on.
"""

from dataclasses import dataclass

from basis_daemon.runtime.hooks.chain import Hand, HookChain
from basis_daemon.runtime.messages import Json, ToolUse
from basis_daemon.runtime.tools.base import PARALLEL, CallPreparation, ExecutionCategory, ToolOutput
from basis_daemon.runtime.tools.registry import Registration


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call, what its name meant when the round was scheduled (TL-10), and the lane it goes in."""

    call: ToolUse
    found: Registration | None
    lane: ExecutionCategory

    @property
    def is_parallel(self) -> bool:
        return self.found is not None and self.lane == PARALLEL

    @property
    def is_terminal(self) -> bool:
        return self.found is not None and self.found.spec.terminal


@dataclass(slots=True)
class OngoingCall:
    """A call on its way through the pipeline. `refusal` is set when it will not run."""

    planned: PlannedCall
    chain: HookChain
    input: dict[str, Json]
    """As the hooks left it: what is previewed, judged and run (AP-3)."""
    hands: tuple[Hand, ...] = ()
    """Who rewrote its input."""
    hands_behind: tuple[Hand, ...] = ()
    """Who changed its result."""
    preparation: CallPreparation | None = None
    refusal: ToolOutput | None = None
    is_bad_rewrite: bool = False
    """Whether it was a rewrite that the tool's schema refused (TL-17)."""
    is_over: bool = False
    """Whether nothing it says is told any more."""

    @property
    def id(self) -> str:
        return self.planned.call.id

    @property
    def name(self) -> str:
        return self.planned.call.name

    def end(self) -> None:
        self.is_over = True

    @property
    def is_consequential(self) -> bool:
        return self.preparation is not None and self.preparation.side_effect != "none"


@dataclass(frozen=True, slots=True)
class EndedCall:
    """What a call came to. `original` is what the tool itself gave (AG-33), `shown` what hooks left of it."""

    original: ToolOutput
    shown: ToolOutput
    did_run: bool = False
