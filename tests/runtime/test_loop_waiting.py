"""A turn that waits for its provider: queued, paused, asleep, opening, streaming; how each wait ends (2.11, 3.8)."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import ProviderRetry, TurnOptions
from basis_daemon.runtime.providers.definition import Credentials, StaticCredentials
from basis_daemon.runtime.providers.governor import Governor
from basis_daemon.runtime.providers.registry import ProviderRegistry, chat_completions_definition
from basis_daemon.runtime.store.base import TurnEnded
from basis_protocol.events import AnyEvent, AssistantDelta, ErrorEvent, InfoChanged, Retry, SessionState
from support.conversations import AT_ONCE, Allow, Conversation, new_conversation
from support.model_server import Gate, ModelServer, breaks, cuts, fails, hangs, rate_limits, raw, says, slow

pytestmark = pytest.mark.anyio
LONG = ProviderRetry(base_delay_s=60, max_delay_s=60)


class Watched:
    """A conversation whose events can be waited for."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._changed = asyncio.Event()

    def emit(self, event: AnyEvent) -> None:
        self.conversation.events.append(event)
        self._changed.set()

    async def say(self, text: str = "hi", **options: Any) -> TurnEnded:
        options = {"retry": AT_ONCE, **options}
        chosen = TurnOptions(**options)
        prompt = self.conversation.accept(text)
        with anyio.fail_after(10):
            return await self.conversation.session.run(prompt, emit=self.emit, approver=Allow(), options=chosen)

    async def saw(self, is_it: Callable[[AnyEvent], bool]) -> None:
        with anyio.fail_after(5):
            while not any(map(is_it, self.conversation.events)):
                self._changed.clear()
                await self._changed.wait()

    async def saw_kind(self, kind: type[AnyEvent]) -> None:
        await self.saw(lambda event: isinstance(event, kind))

    async def saw_waiting(self) -> None:
        await self.saw(lambda event: isinstance(event, InfoChanged) and is_waiting(event.state))

    @property
    def states(self) -> list[SessionState]:
        return [event.state for event in self.conversation.seen(InfoChanged) if event.state is not None]

    @property
    def retries(self) -> list[Retry]:
        return self.conversation.seen(Retry)


def is_waiting(state: SessionState | None) -> bool:
    return state is not None and state.kind == "waiting_provider"


@dataclass
class Shared:
    """What the sessions of one process have in common: a provider and its governor."""

    server: ModelServer
    directory: Path
    governor: Governor
    providers: ProviderRegistry
    max_concurrent: int = 32

    def session(self, base_url: str | None = None, **fields: Any) -> Watched:
        definition = replace(
            chat_completions_definition("own", base_url or self.server.base_url),
            max_concurrent=self.max_concurrent,
            **fields,
        )
        provider = self.providers.make(definition, StaticCredentials(Secret("sk-own-key")))
        conversation = new_conversation(self.server, self.directory, providers=self.providers, provider=provider)
        return Watched(conversation)

    @property
    def under_way(self) -> int:
        return sum(self.governor.lanes.values())


@pytest.fixture
async def shared(server: ModelServer, tmp_path: Path) -> Shared:
    governor = Governor(first_pause_s=0)
    return Shared(server, tmp_path, governor, ProviderRegistry(governor))


# --- held back by others ----------------------------------------------------------------------------------------------


async def test_pause_one_session_is_told_holds_all_of_its_key_and_shows_until_when(shared: Shared) -> None:
    """One governor a process: the second session's request is not sent before the pause is over."""
    shared.server.script(rate_limits(1), says("first"), says("second"))
    first, second = shared.session(), shared.session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.say)
        await first.saw_waiting()
        tasks.start_soon(second.say)
        await second.saw_waiting()
        assert len(shared.server.requests) == 1
    refused, again, other = shared.server.requests
    assert again.arrived_at - refused.arrived_at > 0.9 and other.arrived_at >= again.arrived_at
    for watched in (first, second):
        waiting, over = watched.states[0], watched.states[-1]
        assert (waiting.kind, waiting.cause) == ("waiting_provider", "rate_limit") and waiting.until is not None
        assert "pause" in waiting.detail and over.kind == "working"
    assert shared.under_way == 0


async def test_who_was_refused_first_goes_first(shared: Shared) -> None:
    """First-come order: the retried request keeps its place ahead of one that came during the pause."""
    shared.server.script(rate_limits(1), says("one"), says("two"))
    first, second = shared.session(), shared.session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.say, "early")
        await first.saw_waiting()
        tasks.start_soon(second.say, "late")
    assert [request.prompt for request in shared.server.requests] == ["early", "early", "late"]


async def test_announced_delay_is_the_one_taken_also_where_the_lane_asks_for_more(shared: Shared) -> None:
    """PV-52: no waiting twice. A turn that would try again at once is held by its lane for the second asked for."""
    shared.server.script(rate_limits(1), says("ok"))
    watched = shared.session()
    assert (await watched.say(retry=AT_ONCE)).status == "ok"
    refused, again = shared.server.requests
    announced_s = watched.retries[0].next_delay_ms / 1000
    assert 0.9 < announced_s <= 1.0 and announced_s - 0.1 < again.arrived_at - refused.arrived_at


async def test_schedule_longer_than_the_pause_is_slept_through(shared: Shared) -> None:
    """PV-52."""
    shared.server.script(fails(503, headers={"retry-after": "0"}), says("ok"))
    watched = shared.session()
    await watched.say(retry=ProviderRetry(base_delay_s=0.2))
    refused, again = shared.server.requests
    assert watched.retries[0].next_delay_ms == 200 and again.arrived_at - refused.arrived_at >= 0.19


async def test_cap_holds_the_next_session_back_until_a_stream_is_closed(shared: Shared) -> None:
    gate = Gate()
    shared.max_concurrent = 1
    shared.server.script(slow(says("a", "b"), gate=gate, before=1), says("c"))
    first, second = shared.session(), shared.session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.say)
        await first.saw_kind(AssistantDelta)
        tasks.start_soon(second.say)
        await second.saw_waiting()
        assert len(shared.server.requests) == 1
        gate.open()
    assert second.states[0].cause == "concurrency" and second.states[0].until is None
    assert [state.kind for state in second.states] == ["waiting_provider", "working"]


async def test_time_in_the_queue_is_not_silence_of_the_provider(shared: Shared) -> None:
    """PV-18: the idle timeout counts from when the request is sent."""
    gate = Gate()
    shared.max_concurrent = 1
    shared.server.script(slow(says("a", "b"), gate=gate, before=1), says("c"))
    first, second = shared.session(), shared.session(idle_timeout_s=0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.say)
        await first.saw_kind(AssistantDelta)
        tasks.start_soon(second.say)
        await second.saw_waiting()
        await asyncio.to_thread(shared.server.wait_request, 0)
        with anyio.move_on_after(0.2):  # four times the idle timeout
            await second.saw_kind(AssistantDelta)
        gate.open()
    assert second.retries == []


# --- wherever it is, it can be ended ----------------------------------------------------------------------------------

PHASES = ("opening", "first byte", "streaming", "sleeping", "paused", "queued")


@asynccontextmanager
async def deaf_server() -> AsyncGenerator[str]:
    """Takes connections and never speaks: whoever wants TLS waits. All who came have to leave again."""
    connected: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = asyncio.Event()
        connected.append(left)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        with anyio.fail_after(5):
            for left in connected:
                await left.wait()


@pytest.mark.parametrize("how", ["cancel", "deadline"])
@pytest.mark.parametrize("phase", PHASES)
async def test_cancel_and_deadline_are_seen_in_every_phase(phase: str, how: str, shared: Shared) -> None:
    """AG-27, D-35, PV-54: and nothing is left behind — no place in the queue, no connection."""
    replies = {
        "first byte": hangs(),
        "streaming": hangs(says("a", "b"), after_deltas=1),
        "sleeping": fails(500),
        "paused": rate_limits(60),
    }
    cancel = CancelSignal()
    options: dict[str, Any] = {"deadline_s": 0.3} if how == "deadline" else {"cancel": cancel}
    outcomes: list[TurnEnded] = []
    async with deaf_server() as deaf_url, anyio.create_task_group() as tasks:
        other_cancel = CancelSignal()
        if phase == "queued":
            shared.max_concurrent = 1
            shared.server.script(hangs(says("a", "b"), after_deltas=1))
            other = shared.session()
            tasks.start_soon(lambda: other.say(cancel=other_cancel))
            await other.saw_kind(AssistantDelta)
        elif phase in replies:
            shared.server.script(replies[phase])
        watched = shared.session(deaf_url if phase == "opening" else None)

        async def run() -> None:
            outcomes.append(await watched.say(retry=LONG, **options))
            other_cancel.set()

        tasks.start_soon(run)
        if how == "cancel":
            await reached(phase, watched, shared)
            cancel.set()
    expected = ("cancelled", None) if how == "cancel" else ("error", "deadline")
    assert [(outcome.status, outcome.stopped_by) for outcome in outcomes] == [expected]
    assert shared.under_way == 0
    if phase in ("first byte", "streaming"):
        assert (await shared.server.ending(0)).how == "client_left"


async def reached(phase: str, watched: Watched, shared: Shared) -> None:
    """Wait until the turn is in `phase`."""
    match phase:
        case "opening":
            while not shared.under_way:
                await anyio.lowlevel.checkpoint()
        case "first byte":
            await shared.server.request(0)
        case "streaming":
            await watched.saw_kind(AssistantDelta)
        case "sleeping":
            await watched.saw_kind(Retry)
        case _:
            await watched.saw_waiting()


# --- trying again -----------------------------------------------------------------------------------------------------


async def test_stream_cut_before_any_content_is_tried_again(shared: Shared) -> None:
    """PV-55, D-24: there is nothing for clients to take back."""
    started = raw(b'data: {"id":"r","model":"m","choices":[{"delta":{"role":"assistant"}}]}\n\n')
    shared.server.script(cuts(started, after_deltas=1), says("whole"))
    watched = shared.session()
    outcome = await watched.say()
    assert outcome.final_message == "whole" and len(watched.retries) == 1
    assert [event.text for event in watched.conversation.seen(AssistantDelta)] == ["whole"]


async def test_error_inside_a_stream_after_content_is_tried_again_and_the_text_void(shared: Shared) -> None:
    """PV-55, PV-16."""
    shared.server.script(breaks("overloaded", code="overloaded_error", after=says("half")), says("whole"))
    watched = shared.session()
    assert (await watched.say()).final_message == "whole"
    half = watched.conversation.seen(AssistantDelta)[0]
    assert (half.text, half.message_id) == ("half", watched.retries[0].discarded_message_id)


async def test_failed_attempts_count_toward_the_model_budget(shared: Shared) -> None:
    """PV-53."""
    shared.server.script(fails(500), fails(500), says("never asked for"))
    watched = shared.session()
    outcome = await watched.say(model_budget=2)
    assert outcome.status == "error" and "2 model requests" in (outcome.error or "")
    assert len(shared.server.requests) == 2


async def test_retry_budget_is_how_often_it_is_tried_again(shared: Shared) -> None:
    """PV-52: five by default, each of them told; then the failure, which says that trying again may help."""
    shared.server.script(*[fails(500)] * 7)
    watched = shared.session()
    outcome = await watched.say()
    assert outcome.status == "error" and len(shared.server.requests) == 6
    assert [(retry.attempt, retry.max_attempts) for retry in watched.retries] == [(n, 5) for n in range(1, 6)]
    assert watched.conversation.seen(ErrorEvent)[0].recoverable


def test_schedule_doubles_up_to_its_limit_and_never_overflows() -> None:
    """PV-52, D-23."""
    retry = ProviderRetry(budget=10_000)
    assert [retry.delay_s(attempt, None) for attempt in (1, 2, 3, 4, 5, 33, 10_000)] == [0.5, 1, 2, 4, 5, 5, 5]
    assert [retry.delay_s(1, after) for after in (0.0, 0.2, 7.0, 3600.0)] == [0.5, 0.5, 7.0, 60.0]


# --- failures that say what to do -------------------------------------------------------------------------------------


async def test_conversation_too_long_for_the_model_says_what_can_be_done(shared: Shared) -> None:
    """PV-50, D-25: it is not tried again as it is."""
    shared.server.script(fails(400, {"error": {"message": "too long", "code": "context_length_exceeded"}}))
    outcome = await shared.session().say()
    assert len(shared.server.requests) == 1
    assert "too long for the model" in (outcome.error or "") and "start a new conversation" in (outcome.error or "")


async def test_server_of_this_machine_that_is_not_running_is_said_at_once(shared: Shared) -> None:
    watched = shared.session()
    await asyncio.to_thread(shared.server.close)
    outcome = await watched.say(retry=LONG)
    assert watched.retries == [] and "could not connect" in (outcome.error or "") and "start" in (outcome.error or "")


async def test_spent_account_is_not_asked_again(shared: Shared) -> None:
    shared.server.script(fails(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}))
    watched = shared.session()
    outcome = await watched.say(retry=LONG)
    assert watched.retries == [] and "billing" in (outcome.error or "")
    assert not watched.conversation.seen(ErrorEvent)[0].recoverable


async def test_refused_key_is_named_by_where_it_is_from_and_never_shown(shared: Shared) -> None:
    """RT-38."""

    class Found:
        async def credentials(self) -> Credentials:
            return Credentials(key=Secret("sk-refused"), source="MY_API_KEY")

    shared.server.script(fails(401, {"error": {"message": "Incorrect API key provided: sk-refused"}}))
    provider = shared.providers.make(chat_completions_definition("own", shared.server.base_url), Found())
    watched = Watched(new_conversation(shared.server, shared.directory, providers=shared.providers, provider=provider))
    outcome = await watched.say()
    assert "from MY_API_KEY" in (outcome.error or "") and "sk-refused" not in repr(watched.conversation.events)
