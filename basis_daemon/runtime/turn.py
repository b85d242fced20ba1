"""A running turn as data: what it works on, with what, and how far it has come.

Owns nothing that happens: `loop.py` moves it on, `model_call.py` asks the model for it, `sessions.py` ends it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.limits import Meter
from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.prices import Pricing, unpriced
from basis_daemon.runtime.providers.base import Effort, Provider, RequestOptions, ToolChoice
from basis_daemon.runtime.steering import Steering
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.tool_calls import CallRound, TurnOutput
from basis_daemon.runtime.transcript import Entry, EntryKind
from basis_daemon.runtime.typed_output import OutputWanted
from basis_protocol.events import AnyEvent


@dataclass(frozen=True, slots=True)
class Delivery:
    """Something that was left for an agent, as the transcript takes it. `key` is the inbox's own."""

    kind: EntryKind
    message: Message
    key: str


class Inbox(Protocol):
    """Where things are left for an agent between its rounds: results of background work, a team's messages (3.4, steps
    6 and 7). A delivery is handed out again until it was acknowledged."""

    def drain(self, agent_id: str) -> Sequence[Delivery]:
        """Take what is there, oldest first."""
        ...

    def acknowledge(self, agent_id: str, deliveries: Sequence[Delivery]) -> None:
        """They are part of the conversation now."""
        ...

    def put_back(self, agent_id: str, deliveries: Sequence[Delivery]) -> None:
        """The turn they were taken for did not keep them."""
        ...


@dataclass(kw_only=True)
class Turn:
    """A running turn: what it works on, with what, and how far it has come."""

    agent: Agent
    prompt: PromptAccepted
    provider: Provider
    model: str
    system: str | None
    effort: Effort | None
    calls: CallRound
    meter: Meter
    emit: Callable[[AnyEvent], None]
    pricing: Pricing = unpriced
    max_output_tokens: int | None = None
    resumed: bool = False
    steering: Steering = field(default_factory=Steering)
    inboxes: Sequence[Inbox] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    request_options: RequestOptions = field(default_factory=RequestOptions)
    wanted: OutputWanted | None = None
    """The typed output this turn is to end with (3.11)."""
    output: TurnOutput | None = None
    final_message: str | None = None
    stopped_by: str | None = None
    rounds_completed: int = 0
    is_idle_requested: bool = False
    """Whether a call asked for the turn to end with its round (AG-14)."""
    to_record: list[Entry] = field(default_factory=list[Entry])
    """Delegations of the round under way: kept until its results stand, since nothing may come between a call and its
    result (AG-29). Only kind, message, delegation and edge are set."""
    taken: list[tuple[Inbox, list[Delivery]]] = field(default_factory=list[tuple[Inbox, list[Delivery]]])
    """Deliveries of the rounds that are not complete yet."""
    kept: list[tuple[Inbox, list[Delivery]]] = field(default_factory=list[tuple[Inbox, list[Delivery]]])
    """Deliveries of complete rounds."""
    baseline: str | None = None
    """Leaf before the turn: where a cancelled turn rolls back to."""
    committed: str | None = None
    """Leaf after the last complete round: where a failed turn falls back to (AG-25)."""

    @property
    def id(self) -> str:
        return self.prompt.turn_id

    def complete_round(self) -> None:
        """What the conversation holds now stays when the turn fails later."""
        self.committed = self.agent.transcript.leaf_id
        self.rounds_completed += 1
        self.keep_what_was_said()

    def keep_what_was_said(self) -> None:
        """What people said meanwhile stays with the round it followed; deliveries are kept with it."""
        self.committed = self.agent.transcript.leaf_id
        self.kept += self.taken
        self.taken = []
