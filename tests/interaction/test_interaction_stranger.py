"""A client that was written from the protocol page alone, against a real daemon and a scripted model."""

import os
from pathlib import Path
from typing import Any

import pytest

from interaction.behaviours import behaviour
from support.daemon import DaemonProcess
from support.model_server import ModelServer, calls, says, tool
from support.raw_client import RawClient, Refused


def open_session(client: RawClient, repository: Path, model: ModelServer) -> str:
    """Open the workspace with an environment that leads to the scripted model; returns a new session's id."""
    env = {"PATH": os.environ["PATH"], "BASIS_BASE_URL": model.base_url, "BASIS_API_KEY": "an-example"}
    client.call("basis/workspace/open", {"path": str(repository), "env": env})
    session: str = client.call("basis/session/new", {"workspace": str(repository)})["sessionId"]
    return session


def prompt(client: RawClient, session: str, text: str) -> str:
    params = {"sessionId": session, "input": [{"type": "text", "text": text}]}
    turn: str = client.call("basis/session/prompt", params)["turnId"]
    return turn


def wait(client: RawClient, session: str, turn: str) -> dict[str, Any]:
    outcome: dict[str, Any] = client.call("basis/turn/wait", {"sessionId": session, "turnId": turn, "timeoutMs": 15000})
    return outcome


def attach(client: RawClient, session: str, after: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = client.call("basis/session/attach", {"sessionId": session, "afterSeq": after})
    return result


def types(records: list[dict[str, Any]]) -> list[str]:
    return [record["event"]["type"] for record in records]


@behaviour("stranger_can_join")
def test_a_prompt_is_answered_with_events_numbered_from_one(
    daemon: DaemonProcess, repository: Path, model: ModelServer
) -> None:
    model.script(calls(tool("read", {"path": "pump.py"})), says("It waits ", "two seconds."))
    with daemon.connect() as client:
        session = open_session(client, repository, model)
        attach(client, session)

        turn = prompt(client, session, "Why is it slow?")

        client.event_of_type("run_finished")
        outcome = wait(client, session, turn)
    assert outcome["status"] == "ok"
    assert outcome["finalMessage"] == "It waits two seconds."
    records = client.records
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    seen = types(records)
    assert seen.index("run_started") < seen.index("tool_completed") < seen.index("run_finished")
    assert "".join(r["event"]["text"] for r in records if r["event"]["type"] == "assistant_delta") == (
        "It waits two seconds."
    )
    assert "DELAY_S = 2" in str(model.requests[1].tool_results)


@behaviour("same_events_for_all")
@behaviour("late_is_fine")
def test_two_clients_see_the_same_events_and_a_late_one_the_whole_conversation(
    daemon: DaemonProcess, repository: Path, model: ModelServer
) -> None:
    model.script(says("Blue."))
    with daemon.connect(name="one") as one, daemon.connect(name="two") as two, daemon.connect(name="late") as late:
        session = open_session(one, repository, model)
        attach(one, session)
        attach(two, session)
        prompt(two, session, "Which colour?")
        one.event_of_type("run_finished")
        two.event_of_type("run_finished")

        replayed = attach(late, session)
        late.event_of_type("run_finished")
        shown = late.call("basis/session/history", {"sessionId": session})

    turn = [record for record in one.records if record["event"]["type"] != "client_attached"]
    other = [record for record in two.records if record["event"]["type"] != "client_attached"]
    assert other == turn
    assert replayed["info"]["sessionId"] == session
    assert [record for record in late.records if record in turn] == turn
    assert [(item["kind"], item["text"]) for item in shown["items"]] == [
        ("user", "Which colour?"),
        ("assistant", "Blue."),
    ]


@behaviour("nothing_missed")
@behaviour("work_outlives_windows")
def test_a_client_that_died_in_mid_turn_attaches_again_and_misses_nothing(
    daemon: DaemonProcess, repository: Path, model: ModelServer
) -> None:
    model.script(calls(tool("read", {"path": "pump.py"})), says("Because of the delay."))
    first = daemon.connect(name="first")
    session = open_session(first, repository, model)
    attach(first, session)
    turn = prompt(first, session, "Why?")
    last = first.event_of_type("run_started")["seq"]
    first.die()

    with daemon.connect(name="second") as second:
        assert wait(second, session, turn)["status"] == "ok"
        attach(second, session, after=last)
        second.event_of_type("run_finished")

    seqs = [record["seq"] for record in second.records]
    assert seqs == list(range(last + 1, last + 1 + len(seqs)))
    assert types(second.records).count("assistant_message") == 1


@behaviour("ask_first")
@behaviour("first_answer_wins")
def test_a_write_waits_for_an_answer_that_a_second_client_may_give(
    daemon: DaemonProcess, repository: Path, model: ModelServer
) -> None:
    model.script(calls(tool("write", {"path": "new.txt", "content": "hello\n"})), says("Written."))
    with daemon.connect(name="one") as one, daemon.connect(name="two") as two:
        session = open_session(one, repository, model)
        attach(one, session)
        turn = prompt(one, session, "Write new.txt")
        ask = one.event_of_type("ask_opened")["event"]["ask"]
        assert not (repository / "new.txt").exists()
        assert ask["preview"]["type"] == "diff"

        (listed,) = two.call("basis/ask/list", {"sessionId": session})["asks"]
        outcome = two.call("basis/ask/answer", {"askId": listed["askId"], "decision": "allow"})
        assert outcome["outcome"] == "allowed"
        assert wait(one, session, turn)["status"] == "ok"

        with pytest.raises(Refused) as late:
            one.call("basis/ask/answer", {"askId": ask["askId"], "decision": "deny"})
    assert (repository / "new.txt").read_text() == "hello\n"
    assert late.value.data["kind"] == "ask_decided"


@behaviour("refused_never_runs")
def test_a_refused_command_never_runs_and_the_model_reads_why(
    daemon: DaemonProcess, repository: Path, model: ModelServer
) -> None:
    model.script(calls(tool("spawn", {"input": "!touch ran.txt"})), says("Understood."))
    with daemon.connect() as client:
        session = open_session(client, repository, model)
        attach(client, session)
        turn = prompt(client, session, "Run it")
        ask = client.event_of_type("ask_opened")["event"]["ask"]

        client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "deny", "reason": "not on a Friday"})

        assert wait(client, session, turn)["status"] == "ok"
    assert not (repository / "ran.txt").exists()
    assert "not on a Friday" in str(model.requests[1].tool_results)


@behaviour("asks_outlive_everyone")
@behaviour("conversation_on_disk")
def test_an_ask_survives_kill_9_and_its_answer_carries_the_turn_on(
    daemon: DaemonProcess, repository: Path, model: ModelServer
) -> None:
    model.script(calls(tool("write", {"path": "new.txt", "content": "hello\n"})), says("Written."), says("Yes."))
    with daemon.connect() as client:
        session = open_session(client, repository, model)
        attach(client, session)
        turn = prompt(client, session, "Write new.txt")
        before = client.event_of_type("ask_opened")
        daemon.kill()

    daemon.start()

    with daemon.connect() as client:
        env = {"PATH": os.environ["PATH"], "BASIS_BASE_URL": model.base_url, "BASIS_API_KEY": "an-example"}
        client.call("basis/workspace/open", {"path": str(repository), "env": env})
        (info,) = client.call("basis/session/list", {"workspace": str(repository)})["sessions"]
        assert (info["sessionId"], info["state"]["kind"]) == (session, "waiting_person")
        (ask,) = client.call("basis/ask/list")["asks"]
        assert ask["askId"] == before["event"]["ask"]["askId"]
        attach(client, session, after=before["seq"])
        client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})
        assert wait(client, session, turn)["status"] == "ok"
        assert wait(client, session, prompt(client, session, "Is it there?"))["finalMessage"] == "Yes."
    assert (repository / "new.txt").read_text() == "hello\n"
    assert "Write new.txt" in str(model.requests[-1].body)


@behaviour("garbage_is_contained")
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"\x00" * 20_000,
    ],
)
def test_garbage_ends_its_own_connection_and_nobody_elses(daemon: DaemonProcess, garbage: bytes) -> None:
    with daemon.connect(name="bystander") as bystander, daemon.connect(name="rude") as rude:
        rude.send_bytes(garbage)

        assert rude.is_closed_by_daemon()
        assert bystander.call("basis/daemon/ping")["now"]
    assert daemon.is_running


@behaviour("garbage_is_contained")
@pytest.mark.parametrize("body", [b"\xff\xfe{]]]]]", b"{", b"[]", b'"text"', b"null"])
def test_a_frame_that_is_no_message_is_answered_with_an_error(daemon: DaemonProcess, body: bytes) -> None:
    with daemon.connect() as bystander, daemon.connect() as odd:
        odd.send_bytes(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

        assert odd.answer(None)["error"]["code"] in (-32700, -32600)
        assert bystander.call("basis/daemon/ping")["now"]
    assert daemon.is_running


@behaviour("garbage_is_contained")
def test_exit_ends_one_connection_only(daemon: DaemonProcess) -> None:
    with daemon.connect(name="bystander") as bystander, daemon.connect(name="leaver") as leaver:
        leaver.call("shutdown")
        leaver.notify("exit", None)

        assert leaver.is_closed_by_daemon()
        assert bystander.call("basis/daemon/ping")["now"]
    assert daemon.is_running


@behaviour("handshake_first")
def test_a_request_before_the_handshake_is_refused(daemon: DaemonProcess) -> None:
    with RawClient(daemon.socket) as client, pytest.raises(Refused) as refusal:
        client.call("basis/daemon/status")

    assert refusal.value.code == -32002


@behaviour("versions_are_named")
def test_a_client_of_another_version_is_told_both_ranges(daemon: DaemonProcess) -> None:
    with RawClient(daemon.socket) as client, pytest.raises(Refused) as refusal:
        client.initialize(protocolVersions=[98, 99])

    assert refusal.value.data["kind"] == "protocol_version"
    assert "98" in str(refusal.value)
    assert "1" in str(refusal.value)
    assert refusal.value.data["hint"]


@behaviour("unknown_is_ignored")
def test_unknown_fields_are_ignored_and_unknown_methods_named(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        assert client.call("basis/daemon/ping", {"futureField": [1, 2]})["now"]
        with pytest.raises(Refused) as refusal:
            client.call("basis/daemon/fly")

    assert refusal.value.code == -32601
    assert "basis/daemon/fly" in str(refusal.value)


@behaviour("never_a_dead_end")
def test_with_nothing_configured_a_prompt_is_answered_and_says_how_to_connect_a_model(
    daemon: DaemonProcess, repository: Path
) -> None:
    with daemon.connect() as client:
        opened = client.call("basis/workspace/open", {"path": str(repository), "env": {"PATH": os.environ["PATH"]}})
        session = client.call("basis/session/new", {"workspace": str(repository)})["sessionId"]

        outcome = wait(client, session, prompt(client, session, "What is this repository?"))

    assert opened["provider"] == "rehearsal"
    assert any("model" in notice for notice in opened["notices"])
    assert outcome["status"] == "ok"
    assert "No model is connected" in outcome["finalMessage"]
