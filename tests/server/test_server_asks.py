"""Asks: on disk before anybody hears of them, answered once, remembered for those who come late (protocol.md 5)."""

import os
import time
from pathlib import Path

import anyio
import msgspec
import pytest

from basis_daemon.runtime.approvals import Offer
from basis_daemon.server.ask_files import AskFiles, AskRecord
from basis_daemon.server.asks import AskBook, new_ask_id, options_for
from basis_daemon.server.clock import timestamp
from basis_daemon.server.error_map import AskDecidedAlready, InvalidParams, NoSuchAsk
from basis_daemon.server.work import Work
from basis_protocol.asks import Actor, Ask, AskAnswerParams, AskDecided
from basis_protocol.content import CallPreview

pytestmark = pytest.mark.anyio

ANNA = Actor(client="anna", kind="cli")
BERT = Actor(client="bert", kind="nvim")


def ask(session_id: str = "s", call: str = "call-1", **fields: str) -> Ask:
    return Ask(
        ask_id=new_ask_id(),
        session_id=session_id,
        workspace="/repo",
        kind="tool",
        title="write b.txt",
        description="it can change things",
        tool_call_id=call,
        tool_name="write",
        preview=CallPreview(input={"path": "b.txt"}),
        options=options_for([Offer("session", "every write")]),
        created_at=timestamp(),
        **fields,
    )


class Told:
    """What an ask book announced. An ask that is not on disk at that moment is an error."""

    def __init__(self, directory: Path, work: Work) -> None:
        self.directory = directory
        self.opened: list[str] = []
        self.closed: list[AskRecord] = []
        self.book = AskBook(directory, work, on_opened=self._on_opened, on_closed=self.closed.append)

    def _on_opened(self, opened: Ask) -> None:
        os.close(os.open(self.directory / f"{opened.ask_id}.json", os.O_RDONLY))
        self.opened.append(opened.ask_id)


@pytest.fixture
def told(tmp_path: Path, work: Work) -> Told:
    return Told(tmp_path / "asks", work)


async def test_an_ask_is_on_disk_before_it_is_announced(told: Told) -> None:
    question = ask()

    await told.book.open(question, "turn-1")

    assert told.opened == [question.ask_id]
    assert told.book.pending() == [question]


async def test_the_first_answer_wins_and_the_second_is_told_who_and_what(told: Told) -> None:
    """`ask_decided` carries an `AskDecided`."""
    question = ask()
    await told.book.open(question, "turn-1")

    await told.book.answer(AskAnswerParams(ask_id=question.ask_id, decision="deny", reason="not now"), ANNA)
    with pytest.raises(AskDecidedAlready) as late:
        await told.book.answer(AskAnswerParams(ask_id=question.ask_id, decision="allow"), BERT)

    assert late.value.details["by"] == {"client": "anna", "kind": "cli"}
    assert late.value.details["decision"] == "deny"
    assert late.value.details["reason"] == "not now"
    assert told.book.pending() == []
    assert [record.decided.by for record in told.closed if record.decided] == [ANNA]


async def test_answers_at_the_same_moment_have_one_winner(told: Told) -> None:
    question = ask()
    await told.book.open(question, "turn-1")
    outcomes: list[str] = []

    async def answer(by: Actor) -> None:
        try:
            await told.book.answer(AskAnswerParams(ask_id=question.ask_id, decision="allow"), by)
            outcomes.append("won")
        except AskDecidedAlready:
            outcomes.append("late")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(answer, Actor(client=f"c{n}", kind="cli"))

    assert sorted(outcomes) == ["late"] * 7 + ["won"]


@pytest.mark.parametrize(
    "answer",
    [
        {"decision": "allow", "scope": "project"},
        {"decision": "deny", "scope": "global"},
        {"decision": "allow", "pattern": "x"},
    ],
)
async def test_an_answer_that_is_not_offered_leaves_the_ask_pending(told: Told, answer: dict[str, str]) -> None:
    question = ask()
    await told.book.open(question, "turn-1")

    with pytest.raises(InvalidParams) as refused:
        await told.book.answer(AskAnswerParams(ask_id=question.ask_id, **answer), ANNA)  # type: ignore[arg-type]

    assert "once" in str(refused.value)
    assert told.book.pending() == [question]


async def test_an_unknown_ask_can_not_be_answered(told: Told) -> None:
    with pytest.raises(NoSuchAsk):
        await told.book.answer(AskAnswerParams(ask_id="../../etc/passwd", decision="allow"), ANNA)


async def test_who_waits_is_told_the_answer(told: Told) -> None:
    question = ask()
    await told.book.open(question, "turn-1")
    heard: list[AskRecord] = []

    async def wait() -> None:
        heard.append(await told.book.wait(question.ask_id))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await told.book.answer(AskAnswerParams(ask_id=question.ask_id, decision="allow", scope="session"), ANNA)

    assert heard[0].decided is not None
    assert heard[0].decided.scope == "session"


async def test_pending_asks_and_answers_survive_a_restart(told: Told, work: Work) -> None:
    """protocol.md 5: it survives a daemon restart and a reboot."""
    pending, answered = ask(call="call-1"), ask(call="call-2")
    await told.book.open(pending, "turn-1")
    await told.book.open(answered, "turn-1")
    await told.book.answer(AskAnswerParams(ask_id=answered.ask_id, decision="allow"), ANNA)

    again = Told(told.directory, work).book
    await again.load()

    assert again.pending() == [pending]
    found = again.find("s", "call-2")
    assert found is not None and found.decided is not None and found.decided.decision == "allow"
    assert found.turn_id == "turn-1"


async def test_a_withdrawn_ask_is_nobodys_answer(told: Told) -> None:
    question = ask()
    await told.book.open(question, "turn-1")

    await told.book.close(question.ask_id, "the turn was cancelled")

    assert told.book.find("s", "call-1") is None
    with pytest.raises(AskDecidedAlready) as late:
        await told.book.answer(AskAnswerParams(ask_id=question.ask_id, decision="allow"), ANNA)
    assert late.value.details["by"] == {"client": "basis-daemon"}


async def test_an_ask_whose_time_is_up_is_known_as_such(told: Told) -> None:
    late, early = ask(expires_at=timestamp(time.time() - 1)), ask(expires_at=timestamp(time.time() + 60))
    await told.book.open(late, "turn-1")
    await told.book.open(early, "turn-1")

    assert told.book.expired() == [late.ask_id]


async def test_an_ask_that_can_not_be_kept_is_not_announced(tmp_path: Path, work: Work) -> None:
    (tmp_path / "asks").write_text("a file where the directory should be")
    told = Told(tmp_path / "asks", work)

    with pytest.raises(OSError):  # noqa: PT011 (which one is the platform's matter)
        await told.book.open(ask(), "turn-1")

    assert told.opened == []
    assert told.book.pending() == []


def test_decided_asks_are_kept_a_week_and_unreadable_files_are_left_alone(tmp_path: Path) -> None:
    files = AskFiles(tmp_path)
    day = 24 * 3600
    for age in (1, 6, 8, 30):
        decided = AskDecided(by=ANNA, decision="allow", scope="once", at=timestamp(time.time() - age * day))
        files.write(AskRecord(ask(call=f"{age} days"), "turn", decided))
    files.write(AskRecord(ask(call="pending"), "turn"))
    (tmp_path / "broken.json").write_text("{")

    calls = {record.ask.tool_call_id for record in AskFiles(tmp_path).load()}

    assert calls == {"1 days", "6 days", "pending"}
    assert len(list(tmp_path.glob("ask-*.json"))) == 3
    assert (tmp_path / "broken.json").exists()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ask-1", b'"createdAt":"20', b'"createdAt":"next week'),
        ("ask-1", b'"at":"20', b'"at":"yesterday'),
        ("elsewhere", b"", b""),
        ("ask-1", b"{", b'{"x":' + b"[" * 100_000),
    ],
)
def test_a_file_that_was_meddled_with_is_left_alone(tmp_path: Path, name: str, old: bytes, new: bytes) -> None:
    """One of them must not keep the daemon from starting."""
    files = AskFiles(tmp_path)
    decided = AskDecided(by=ANNA, decision="allow", scope="once", at=timestamp())
    files.write(AskRecord(ask(call="whole"), "turn"))
    files.write(AskRecord(msgspec.structs.replace(ask(call="broken"), ask_id="ask-1"), "turn", decided))
    path = tmp_path / "ask-1.json"
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    path.rename(tmp_path / f"{name}.json")

    assert [record.ask.tool_call_id for record in files.load()] == ["whole"]
    assert (tmp_path / f"{name}.json").exists()
