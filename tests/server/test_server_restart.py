"""SIGKILL and a new daemon on the same data: nothing anybody was told is lost, and work can be carried on."""

import itertools
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.daemon import DaemonProcess, OpenSession
from support.model_server import Gate, ModelServer, calls, hangs, says, slow, tool
from support.raw_client import RawClient, Refused

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems don't show who started whom")


def prompt(client: RawClient, session_id: str, text: str) -> str:
    params = {"sessionId": session_id, "input": [{"type": "text", "text": text}]}
    return client.call("basis/session/prompt", params)["turnId"]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["event"]["text"] for event in events if event["event"]["type"] == "assistant_delta")


def writes(path: str = "b.txt") -> Any:
    return calls(tool("write", {"path": path, "content": "beta\n"}))


def again(daemon: DaemonProcess, repo: Path, environment: dict[str, str]) -> RawClient:
    """Kill the daemon, start another one and open the repository as an editor does when it reconnects."""
    client = daemon.restart().connect(name="again")
    client.call("basis/workspace/open", {"path": str(repo), "env": environment})
    return client


def test_a_killed_daemon_leaves_a_conversation_that_goes_on(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    model.script(says("one"), says("two"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "first")
    seen = client.events_until("run_finished")

    late = again(daemon, repo, environment)
    answer = late.call("basis/session/attach", {"sessionId": session_id, "afterSeq": seen[0]["seq"]})
    missed = late.events_until("run_finished")
    prompt(late, session_id, "second")
    following = late.events_until("run_finished")

    assert missed == seen[1:]
    assert answer["info"]["title"] == "first"
    assert text_of(following) == "two"
    assert [message["content"] for message in model.requests[1].body["messages"] if message["role"] == "user"][-2:] == [
        "first",
        "second",
    ]
    numbers = [event["seq"] for event in missed + following]
    assert numbers == sorted(set(numbers))


def test_a_turn_in_flight_is_shown_as_interrupted_and_can_be_resumed(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """architecture.md 5: at most the round in flight is lost."""
    model.script(calls(tool("read", {"path": "a.txt"})), hangs(says("one", "two"), after_deltas=1), says("the end"))
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "read and tell")
    seen = client.events_until("assistant_delta")

    late = again(daemon, repo, environment)
    [listed] = late.call("basis/session/list")["sessions"]
    answer = late.call("basis/session/attach", {"sessionId": session_id, "afterSeq": seen[-1]["seq"]})
    closing = late.events_until("run_finished")[-1]["event"]
    waited = late.call("basis/turn/wait", {"sessionId": session_id, "turnId": turn})
    resumed = late.call("basis/turn/resume", {"sessionId": session_id})
    events = late.events_until("run_finished")

    assert listed["state"]["kind"] == "interrupted"
    assert answer["info"]["state"]["kind"] == "interrupted"
    assert answer["turn"] == {"turnId": turn, "state": "interrupted", "by": {"client": "raw", "kind": "cli"}}
    assert (closing["turnId"], closing["status"]) == (turn, "interrupted")
    assert waited["status"] == "interrupted"
    assert resumed == {"turnId": turn}
    started = next(event["event"] for event in events if event["event"]["type"] == "run_started")
    assert started["resumed"] is True
    assert text_of(events) == "the end"
    assert len([m for m in model.requests[2].body["messages"] if m["role"] == "tool"]) == 1
    assert late.call("basis/turn/wait", {"sessionId": session_id, "turnId": turn})["status"] == "ok"
    assert late.call("basis/session/list")["sessions"][0]["state"]["kind"] == "idle"


def test_an_ask_survives_the_kill_and_its_answer_carries_the_turn_on(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """protocol.md 5: an ask survives a restart; answering it carries on."""
    model.script(writes(), says("written"))
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "write b.txt")
    ask = client.events_until("ask_opened")[-1]["event"]["ask"]

    late = again(daemon, repo, environment)
    [pending] = late.call("basis/ask/list")["asks"]
    [listed] = late.call("basis/session/list")["sessions"]
    attached = late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/ask/answer", {"askId": pending["askId"], "decision": "allow"})
    events = late.events_until("run_finished")

    assert pending == ask
    assert listed["state"]["kind"] == "waiting_person"
    assert attached["info"]["state"] == {**attached["info"]["state"], "kind": "waiting_person", "askId": ask["askId"]}
    assert (repo / "b.txt").read_text() == "beta\n"
    assert events[-1]["event"]["turnId"] == turn and events[-1]["event"]["status"] == "ok"
    kinds = [event["event"]["type"] for event in events]
    assert "ask_opened" not in kinds and kinds.count("ask_closed") == 1


def test_an_answer_that_was_given_just_before_the_kill_still_counts(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """A recorded answer is found by session and tool call; nobody is asked twice."""
    model.script(writes(), says("written"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "write b.txt")
    ask = client.events_until("ask_opened")[-1]["event"]["ask"]
    daemon.kill()
    record_path = daemon.data / "asks" / f"{ask['askId']}.json"
    record = json.loads(record_path.read_text())
    record["decided"] = {
        "by": {"client": "anna", "kind": "cli"},
        "decision": "allow",
        "scope": "once",
        "at": "2099-01-01T00:00:00.000Z",
    }
    record_path.write_text(json.dumps(record))

    daemon.start()
    late = daemon.connect(name="late")
    late.call("basis/workspace/open", {"path": str(repo), "env": environment})
    late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/turn/resume", {"sessionId": session_id})
    events = late.events_until("run_finished")

    assert "ask_opened" not in [event["event"]["type"] for event in events]
    assert (repo / "b.txt").exists()


def test_an_answer_without_an_opened_workspace_waits_for_one(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """The key came with a client and is gone with the daemon: the answer is kept until one comes again."""
    model.script(writes(), says("written"))
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "write b.txt")
    ask = client.events_until("ask_opened")[-1]["event"]["ask"]

    late = daemon.restart().connect(name="late")
    assert late.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"}) == {"outcome": "allowed"}
    late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/workspace/open", {"path": str(repo), "env": environment})
    finished = late.events_until("run_finished")[-1]["event"]

    assert (finished["turnId"], finished["status"]) == (turn, "ok")
    assert (repo / "b.txt").exists()


def test_a_session_attached_before_its_workspace_was_opened_uses_it_all_the_same(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    model.script(writes(), says("written"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "write b.txt")
    ask = client.events_until("ask_opened")[-1]["event"]["ask"]

    late = daemon.restart().connect(name="late")
    late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/workspace/open", {"path": str(repo), "env": environment})
    late.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})

    assert late.events_until("run_finished")[-1]["event"]["status"] == "ok"


def test_a_new_prompt_instead_of_an_answer_leaves_the_question_behind(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    model.script(writes(), says("something else"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "write b.txt")
    ask = client.events_until("ask_opened")[-1]["event"]["ask"]

    late = again(daemon, repo, environment)
    late.call("basis/session/attach", {"sessionId": session_id})
    prompt(late, session_id, "never mind")
    events = late.events_until("run_finished")

    assert text_of(events) == "something else"
    assert late.call("basis/ask/list")["asks"] == []
    assert (
        late.refusal("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})["data"]["kind"] == "ask_decided"
    )
    assert not (repo / "b.txt").exists()


def test_cancelling_an_interrupted_turn_rolls_it_back(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    model.script(writes())
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "write b.txt")
    client.events_until("ask_opened")

    late = again(daemon, repo, environment)
    late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/turn/cancel", {"sessionId": session_id, "turnId": turn})
    late.events_until("run_started")
    finished = late.events_until("run_finished")[-1]["event"]

    assert finished["turnId"] == turn
    assert finished["status"] == "cancelled"
    assert late.call("basis/ask/list")["asks"] == []
    assert not (repo / "b.txt").exists()
    assert len(model.requests) == 1


def test_prompts_that_were_accepted_run_after_the_restart(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """What was called accepted is kept: behind an interrupted turn once that is over."""
    gate = Gate()
    model.script(slow(says("first"), gate=gate), says("first again"), says("second"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "1")
    second = prompt(client, session_id, "2")
    gate.wait_arrival()

    late = again(daemon, repo, environment)
    attached = late.call("basis/session/attach", {"sessionId": session_id})
    assert [queued["turnId"] for queued in attached["queued"]] == [second]
    late.call("basis/turn/resume", {"sessionId": session_id})
    answers = [text_of(late.events_until("run_finished")) for _ in range(2)]
    gate.open()

    assert answers == ["first again", "second"]


def test_the_mode_of_a_session_is_not_forgotten(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    model.script(says("one"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "go")
    client.events_until("run_finished")
    client.call("basis/session/setConfig", {"sessionId": session_id, "option": "mode", "value": "never"})

    late = again(daemon, repo, environment)
    info = late.call("basis/session/attach", {"sessionId": session_id})["info"]

    assert {option["option"]: option["value"] for option in info["config"]}["mode"] == "never"


@pytest.mark.slow
def test_no_number_a_client_has_seen_is_ever_lost_or_given_twice(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """Killed at ten random moments of streaming turns: the numbers go on without holes for who was watching."""
    model.script(*(slow(says(*(f"{n}-{i} " for i in range(200))), delay_s=0.001) for n in range(40)))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "go")
    seen: dict[int, str] = {}
    dice = random.Random(7)

    for _ in range(10):
        deadline = time.monotonic() + dice.uniform(0.0, 0.3)
        while time.monotonic() < deadline:
            take(client, seen)
        daemon.kill()
        drain(client, seen)
        daemon.start()
        client = daemon.connect(name="again")
        client.call("basis/workspace/open", {"path": str(repo), "env": environment})
        answer = client.call("basis/session/attach", {"sessionId": session_id, "afterSeq": max(seen, default=0)})
        assert "snapshot" not in answer
        if answer["info"]["state"]["kind"] == "interrupted":
            client.call("basis/turn/resume", {"sessionId": session_id})
        elif answer["info"]["state"]["kind"] == "idle":
            prompt(client, session_id, "go on")
    while "run_finished" not in take(client, seen):
        pass

    assert sorted(seen) == list(range(min(seen), max(seen) + 1))


def take(client: RawClient, seen: dict[int, str]) -> str:
    """Note one more event; the same number must always mean the same event."""
    params = client.next_notification("basis/session/event")
    line = json.dumps(params, sort_keys=True)
    assert seen.setdefault(params["seq"], line) == line
    return line


def drain(client: RawClient, seen: dict[int, str]) -> None:
    """Everything that had reached the socket before the kill counts as seen."""
    for _ in itertools.count():
        try:
            take(client, seen)
        except (EOFError, ConnectionError):
            return


def test_an_answer_does_not_hold_for_a_file_that_was_changed_after_it_was_shown(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """5.7 (e): what the person saw is what runs. After a restart the preview may be another; then it is asked anew."""
    (repo / "b.txt").write_text("one\n")
    model.script(writes("b.txt"), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "go")
    shown = client.event_of_type("ask_opened")["event"]["ask"]
    daemon.kill()
    (repo / "b.txt").write_text("somebody else's work\n")

    daemon.start()
    late = daemon.connect(name="again")
    late.call("basis/workspace/open", {"path": str(repo), "env": environment})
    late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/ask/answer", {"askId": shown["askId"], "decision": "allow"})
    asked_anew = late.event_of_type("ask_opened")["event"]["ask"]

    assert asked_anew["askId"] != shown["askId"]
    assert "somebody else's work" in asked_anew["preview"]["files"][0]["patch"]
    assert (repo / "b.txt").read_text() == "somebody else's work\n"
    late.call("basis/ask/answer", {"askId": asked_anew["askId"], "decision": "deny"})
    late.event_of_type("run_finished")
    assert (repo / "b.txt").read_text() == "somebody else's work\n"


def test_what_a_command_makes_has_the_persons_usual_mode_and_the_daemons_own_files_are_private(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, data_dir: Path
) -> None:
    """ST-31: files 0600 and directories 0700 below the data directory; nothing of that reaches the repository."""
    model.script(calls(tool("spawn", {"input": "!umask; touch made.txt"})), says("done"))
    client = daemon.connect()
    session_id = open_session(client, config={"mode": "always"})
    prompt(client, session_id, "go")
    client.event_of_type("run_finished")

    assert (repo / "made.txt").stat().st_mode & 0o777 == 0o666 & ~_umask()
    open_to_others = [path for path in data_dir.rglob("*") if path.lstat().st_mode & 0o077]
    assert open_to_others == []


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_conversation_may_ask_for_another_provider_and_keeps_it_after_a_restart(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """`basisctl run --provider rehearsal` beside a workspace that uses another one."""
    (repo / "a.txt").write_text("alpha\n")
    client = daemon.connect()
    session_id = open_session(client, config={"provider": "rehearsal"})
    prompt = {"sessionId": session_id, "input": [{"type": "text", "text": "read a.txt"}]}
    client.call("basis/session/prompt", prompt)
    first = client.events_until("run_finished")

    late = daemon.restart().connect(name="late")
    late.call("basis/workspace/open", {"path": str(repo), "env": environment})
    attached = late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/session/prompt", prompt)
    second = late.events_until("run_finished")

    for events in (first, second):
        started = next(event["event"] for event in events if event["event"]["type"] == "run_started")
        assert started["provider"] == "rehearsal"
        assert events[-1]["event"]["status"] == "ok"
    assert attached["info"]["provider"] == "rehearsal"
    assert model.requests == []


def test_a_conversation_that_asks_for_a_provider_nobody_knows_is_refused(
    daemon: DaemonProcess, open_session: OpenSession
) -> None:
    with daemon.connect() as client, pytest.raises(Refused) as refused:
        open_session(client, config={"provider": "oracle"})
    assert refused.value.data["kind"] == "unknown_provider"
    assert "rehearsal" in refused.value.data["hint"]


@ONLY_LINUX
def test_a_command_does_not_outlive_the_kill_of_its_daemon(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """PO-12: the next daemon ends what was left running, also what had made itself independent, before the turn that
    was cut short can be carried on."""
    escaped = "setsid sh -c 'echo $$ > escaped; exec sleep 300' >/dev/null 2>&1 & "
    model.script(calls(tool("spawn", {"input": f"!{escaped} echo $$ > own; trap '' TERM; sleep 300; sleep 300"})))
    client = daemon.connect()
    session_id = open_session(client)
    client.call("basis/session/setConfig", {"sessionId": session_id, "option": "mode", "value": "always"})
    prompt(client, session_id, "go")
    pids = [written_pid(repo / name) for name in ("own", "escaped")]
    daemon.kill()
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids)

    again(daemon, repo, environment)

    assert not any(is_alive(pid) for pid in pids)
    assert daemon.log.count("left running by a daemon that was killed") >= 2


def test_an_orderly_end_leaves_nothing_for_the_next_daemon_to_end(daemon: DaemonProcess) -> None:
    daemon.terminate()

    assert (daemon.data / "daemon.lock").read_text() == ""


def written_pid(file: Path) -> int:
    deadline = time.monotonic() + 10
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < deadline, f"{file} was not written"
        time.sleep(0.01)  # the process tells nobody else that it runs
    return int(file.read_text())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
