"""Sessions over the wire: prompting, watching, asking, listing, ending (protocol.md 3, 4, 5; DM-13 to DM-19)."""

import threading
from pathlib import Path
from typing import Any

import pytest

from support.daemon import DaemonProcess, OpenSession
from support.model_server import Gate, ModelServer, burst, calls, fails, rate_limits, says, slow, tool
from support.raw_client import RawClient


def prompt(client: RawClient, session_id: str, text: str, **params: Any) -> dict[str, Any]:
    block = {"type": "text", "text": text}
    return client.call("basis/session/prompt", {"sessionId": session_id, "input": [block], **params})


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"]["type"] for event in events]


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["event"]["text"] for event in events if event["event"]["type"] == "assistant_delta")


def writes(path: str = "b.txt") -> Any:
    return calls(tool("write", {"path": path, "content": "beta\n"}))


def opened_ask(client: RawClient) -> dict[str, Any]:
    return client.events_until("ask_opened")[-1]["event"]["ask"]


def test_a_prompt_is_accepted_at_once_and_its_answer_streams(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 3: acceptance is the answer, the end of the turn is an event."""
    gate = Gate()
    model.script(slow(says("Hello", " there"), gate=gate))
    client = daemon.connect()
    session_id = open_session(client)

    accepted = prompt(client, session_id, "greet me")
    assert accepted["state"] == "running"
    gate.open()
    events = client.events_until("run_finished")

    assert text_of(events) == "Hello there"
    assert numbers(events) == list(range(events[0]["seq"], events[0]["seq"] + len(events)))
    assert events[-1]["event"]["turnId"] == accepted["turnId"]
    assert events[-1]["event"]["status"] == "ok"
    bookends = [kind for kind in kinds(events) if kind.startswith("run_")]
    assert bookends == ["run_started", "run_finished"]


def test_two_clients_see_the_same_events_with_the_same_numbers(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 4."""
    model.script(says("one ", "two ", "three"))
    first, second = daemon.connect(), daemon.connect(name="second")
    session_id = open_session(first)
    second.call("basis/session/attach", {"sessionId": session_id})

    prompt(first, session_id, "count")
    seen = [client.events_until("run_finished") for client in (first, second)]

    assert seen[0] == seen[1]


def test_a_client_that_attaches_late_gets_exactly_what_it_missed(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 3, `session/attach` with `afterSeq`."""
    model.script(says("one"), says("two"))
    first = daemon.connect()
    session_id = open_session(first)
    prompt(first, session_id, "go")
    events = first.events_until("run_finished")
    prompt(first, session_id, "again")
    events += first.events_until("run_finished")

    late = daemon.connect(name="late")
    after = events[2]["seq"]
    answer = late.call("basis/session/attach", {"sessionId": session_id, "afterSeq": after})
    missed = late.events_until("run_finished") + late.events_until("run_finished")

    assert answer["seq"] == after
    assert "snapshot" not in answer
    assert [event for event in missed if event["seq"] <= events[-1]["seq"]] == [e for e in events if e["seq"] > after]


def test_without_a_number_the_past_comes_as_a_snapshot(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    model.script(says("an answer"), says("more"))
    first = daemon.connect()
    session_id = open_session(first)
    prompt(first, session_id, "a question")
    first.events_until("run_finished")

    late = daemon.connect(name="late")
    answer = late.call("basis/session/attach", {"sessionId": session_id})
    prompt(first, session_id, "and now?")
    following = late.events_until("run_finished")

    assert [(item["kind"], item["text"]) for item in answer["snapshot"]["items"]] == [
        ("user", "a question"),
        ("assistant", "an answer"),
    ]
    assert not answer["snapshot"].get("reset")
    assert following[0]["seq"] == answer["seq"] + 1


def test_a_number_the_daemon_never_gave_is_answered_with_a_reset(
    daemon: DaemonProcess, open_session: OpenSession
) -> None:
    client = daemon.connect()
    session_id = open_session(client)

    answer = client.call("basis/session/attach", {"sessionId": session_id, "afterSeq": 4711})

    assert answer["snapshot"]["reset"] is True
    assert answer["seq"] < 4711


def test_a_snapshot_taken_in_mid_stream_has_what_was_painted_so_far(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """`partial` and the events behind it make the whole message, nothing twice."""
    gate = Gate()
    model.script(slow(says("Hello", " there"), gate=gate, before=1))
    first = daemon.connect()
    session_id = open_session(first)
    prompt(first, session_id, "greet")
    first.events_until("assistant_delta")

    late = daemon.connect(name="late")
    answer = late.call("basis/session/attach", {"sessionId": session_id})
    gate.open()
    rest = late.events_until("assistant_message")

    assert answer["turn"]["state"] == "running"
    assert answer["snapshot"]["partial"]["text"] == "Hello"
    assert text_of(rest) == " there"
    assert rest[-1]["event"]["messageId"] == answer["snapshot"]["partial"]["messageId"]


def test_a_refused_write_never_happens_and_the_model_reads_why(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """protocol.md 5: a refused call never runs; a denial's reason is what the model reads."""
    model.script(writes(), says("all right"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "write b.txt")
    ask = opened_ask(client)

    client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "deny", "reason": "not on a Friday"})
    events = client.events_until("run_finished")

    assert ask["preview"]["type"] == "diff"
    assert not (repo / "b.txt").exists()
    assert events[-1]["event"]["status"] == "ok"
    assert any("not on a Friday" in result for result in model.requests[1].tool_results.values())


def test_an_ask_is_answered_from_a_second_client_while_the_first_is_gone(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """DM-17, DM-19: the asking client's end changes nothing."""
    model.script(writes(), says("written"))
    first = daemon.connect()
    session_id = open_session(first)
    prompt(first, session_id, "write b.txt")
    opened_ask(first)
    first.socket.close()

    second = daemon.connect(name="second")
    [ask] = second.call("basis/ask/list")["asks"]
    attached = second.call("basis/session/attach", {"sessionId": session_id})
    assert attached["asks"] == [ask]
    assert attached["info"]["state"]["kind"] == "waiting_person"
    assert attached["info"]["state"]["askId"] == ask["askId"]
    outcome = second.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})
    second.events_until("run_finished")

    assert outcome == {"outcome": "allowed"}
    assert (repo / "b.txt").read_text() == "beta\n"


def test_the_second_answer_is_told_who_was_first(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    model.script(writes(), says("written"))
    first, second = daemon.connect(name="anna"), daemon.connect(name="bert")
    session_id = open_session(first)
    second.call("basis/session/attach", {"sessionId": session_id})
    prompt(first, session_id, "write")
    ask = opened_ask(first)
    first.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})

    error = second.refusal("basis/ask/answer", {"askId": ask["askId"], "decision": "deny"})
    closed = second.events_until("ask_closed")[-1]["event"]

    assert error["data"]["kind"] == "ask_decided"
    assert error["data"]["details"]["by"]["client"] == "anna"
    assert error["data"]["details"]["decision"] == "allow"
    assert closed["askId"] == ask["askId"] and closed["by"]["client"] == "anna"


def test_an_answer_for_the_session_is_not_asked_again(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """AP-14."""
    model.script(writes("b.txt"), writes("c.txt"), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "write twice")
    ask = opened_ask(client)

    client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow", "scope": "session"})
    events = client.events_until("run_finished")

    assert "ask_opened" not in kinds(events)
    assert (repo / "c.txt").exists()


@pytest.mark.parametrize("watches", [True, False])
def test_an_unattended_prompt_that_does_not_wait_is_denied_with_its_reason(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, watches: bool
) -> None:
    """protocol.md 5: a headless client states its policy with the prompt and fails fast."""
    model.script(writes(), says("refused"))
    client = daemon.dial()
    client.initialize(approve=False)
    session_id = open_session(client)
    if not watches:
        client.call("basis/session/detach", {"sessionId": session_id})

    turn = prompt(client, session_id, "write", unattended={"policy": "deny", "reason": "no person in this job"})
    outcome = client.call("basis/turn/wait", {"sessionId": session_id, "turnId": turn["turnId"]})

    assert outcome["status"] == "ok"
    assert client.call("basis/ask/list")["asks"] == []
    assert not (repo / "b.txt").exists()
    assert any("no person in this job" in result for result in model.requests[1].tool_results.values())


def test_prompts_queue_in_order_of_arrival(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """DM-16: exactly one turn runs; prompts queue per session."""
    gate = Gate()
    model.script(slow(says("first"), gate=gate), says("second"), says("third"))
    client = daemon.connect()
    session_id = open_session(client)

    states = [prompt(client, session_id, text)["state"] for text in ("1", "2", "3")]
    refused = client.refusal(
        "basis/session/prompt",
        {"sessionId": session_id, "input": [{"type": "text", "text": "4"}], "whenBusy": "reject"},
    )
    gate.open()
    answers = [text_of(client.events_until("run_finished")) for _ in range(3)]

    assert states == ["running", "queued", "queued"]
    assert refused["data"]["kind"] == "busy"
    assert answers == ["first", "second", "third"]


def test_a_queued_prompt_can_be_withdrawn(daemon: DaemonProcess, model: ModelServer, open_session: OpenSession) -> None:
    gate = Gate()
    model.script(slow(says("first"), gate=gate), says("third"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "1")
    second = prompt(client, session_id, "2")
    prompt(client, session_id, "3")

    client.call("basis/turn/cancel", {"sessionId": session_id, "turnId": second["turnId"]})
    withdrawn = client.events_until("run_finished")[-1]["event"]
    gate.open()
    answers = [text_of(client.events_until("run_finished")) for _ in range(2)]

    assert withdrawn["turnId"] == second["turnId"] and withdrawn["status"] == "cancelled"
    assert answers == ["first", "third"]
    waited = client.call("basis/turn/wait", {"sessionId": session_id, "turnId": second["turnId"]})
    assert waited["status"] == "cancelled"


def test_cancel_abandons_the_turn_and_withdraws_its_question(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """protocol.md 3: cancel rolls back. DM-18: it never waits."""
    model.script(writes())
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "write")
    ask = opened_ask(client)

    client.call("basis/turn/cancel", {"sessionId": session_id})
    events = client.events_until("run_finished")
    if "ask_closed" not in kinds(events):
        events += client.events_until("ask_closed")

    closed = next(event["event"] for event in events if event["event"]["type"] == "ask_closed")
    assert closed["by"]["kind"] == "daemon" if "kind" in closed["by"] else closed["by"]["client"] == "basis-daemon"
    finished = next(event["event"] for event in events if event["event"]["type"] == "run_finished")
    assert finished["status"] == "cancelled"
    assert (
        client.refusal("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})["data"]["kind"]
        == "ask_decided"
    )
    assert not (repo / "b.txt").exists()
    assert client.call("basis/session/history", {"sessionId": session_id})["items"] == []


def test_stop_ends_at_the_round_boundary_and_keeps_the_work(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    gate = Gate()
    model.script(slow(calls(tool("read", {"path": "a.txt"})), gate=gate, before=0), says("never asked for"))
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "read a.txt")
    gate.wait_arrival()

    client.call("basis/turn/stop", {"sessionId": session_id, "turnId": turn["turnId"]})
    gate.open()
    finished = client.events_until("run_finished")[-1]["event"]

    assert finished["status"] == "ok"
    assert len(model.requests) == 1
    kept = client.call("basis/session/history", {"sessionId": session_id})["items"]
    assert [item["kind"] for item in kept] == ["user", "tool"]


def test_steering_reaches_the_running_turn_and_a_stale_turn_is_refused(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 3: a stale id is `stale_turn`, never the next turn's input."""
    gate = Gate()
    model.script(slow(calls(tool("read", {"path": "a.txt"})), gate=gate, before=0), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "read a.txt")
    gate.wait_arrival()
    block = [{"type": "text", "text": "in French, please"}]

    steered = client.call(
        "basis/turn/steer", {"sessionId": session_id, "expectedTurnId": turn["turnId"], "input": block}
    )
    gate.open()
    client.events_until("run_finished")
    stale = client.refusal(
        "basis/turn/steer", {"sessionId": session_id, "expectedTurnId": turn["turnId"], "input": block}
    )

    assert steered == {"turnId": turn["turnId"], "state": "steering"}
    assert "in French, please" in str(model.requests[1].body)
    assert stale["data"]["kind"] == "stale_turn"


def test_turn_wait_answers_again_and_again_and_may_give_up(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    gate = Gate()
    model.script(slow(says("the answer"), gate=gate))
    client = daemon.connect()
    session_id = open_session(client)
    wait = {"sessionId": session_id, "turnId": prompt(client, session_id, "go")["turnId"]}

    early = client.refusal("basis/turn/wait", {**wait, "timeoutMs": 1})
    gate.open()
    outcomes = [client.call("basis/turn/wait", wait) for _ in range(2)]

    assert early["data"]["kind"] == "timeout"
    assert [outcome["finalMessage"] for outcome in outcomes] == ["the answer"] * 2
    assert client.refusal("basis/turn/wait", {**wait, "turnId": "turn-x"})["data"]["kind"] == "no_such_turn"


def test_a_waiting_request_can_be_cancelled(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """-32800; the turn goes on."""
    gate = Gate()
    model.script(slow(says("the answer"), gate=gate))
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "go")
    waiting = client.request("basis/turn/wait", {"sessionId": session_id, "turnId": turn["turnId"]})

    client.notify("$/cancelRequest", {"id": waiting})

    assert client.answer(waiting)["error"]["code"] == -32800
    gate.open()
    assert client.events_until("run_finished")[-1]["event"]["status"] == "ok"


def test_more_than_a_client_may_have_under_way_is_refused_not_queued(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 8: -32001, retry with back-off; a ping is answered all the same."""
    gate = Gate()
    model.script(slow(says("the answer"), gate=gate))
    client = daemon.connect()
    session_id = open_session(client)
    wait = {"sessionId": session_id, "turnId": prompt(client, session_id, "go")["turnId"]}

    waiting = [client.request("basis/turn/wait", wait) for _ in range(300)]
    assert client.call("basis/daemon/ping")
    gate.open()
    answers = [client.answer(request_id) for request_id in waiting]

    refused = [answer["error"]["code"] for answer in answers if "error" in answer]
    assert refused == [-32001] * 44


def test_a_retry_shows_as_waiting_for_the_provider(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    model.script(rate_limits(0), says("finally"))
    client = daemon.connect()
    session_id = open_session(client)

    prompt(client, session_id, "go")
    events = client.events_until("run_finished") + client.events_until("info_changed")

    states = [
        e["event"]["state"]["kind"] for e in events if e["event"]["type"] == "info_changed" and "state" in e["event"]
    ]
    assert states == ["working", "waiting_provider", "working", "idle"]


def test_a_failed_turn_can_be_carried_on(daemon: DaemonProcess, model: ModelServer, open_session: OpenSession) -> None:
    """AG-6: what was committed stays, and the rest is tried again."""
    model.script(calls(tool("read", {"path": "a.txt"})), fails(400), says("the end"))
    client = daemon.connect()
    session_id = open_session(client)
    turn = prompt(client, session_id, "read a.txt")

    failed = client.events_until("run_finished")[-1]["event"]
    resumed = client.call("basis/turn/resume", {"sessionId": session_id})
    waiting = {"sessionId": session_id, "turnId": turn["turnId"]}

    assert failed["status"] == "error"
    assert resumed == {"turnId": turn["turnId"]}
    assert client.call("basis/turn/wait", waiting)["finalMessage"] == "the end"
    assert client.refusal("basis/turn/resume", {"sessionId": session_id})["data"]["kind"] == "nothing_to_resume"


def test_a_session_is_titled_by_its_first_prompt_and_listed_most_recent_first(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """Nothing is listed before a first prompt; ST-25."""
    model.script(*(says("ok") for _ in range(3)))
    client = daemon.connect()
    sessions = [open_session(client) for _ in range(4)]
    for session_id, text in zip(sessions, ["Fix the tests\nplease", "  \nAdd a feature", "Fix the docs"], strict=False):
        prompt(client, session_id, text)
        client.events_until("run_finished", session_id)

    listed = client.call("basis/session/list", {"workspace": str(repo)})["sessions"]
    found = client.call("basis/session/list", {"query": "fix the"})["sessions"]

    # Also within one second, in which times don't tell them apart.
    assert [session["title"] for session in listed] == ["Fix the docs", "Add a feature", "Fix the tests"]
    assert sorted(session["updatedAt"] for session in listed) == [s["updatedAt"] for s in reversed(listed)]
    assert {session["title"] for session in found} == {"Fix the tests", "Fix the docs"}
    assert all(session["state"]["kind"] == "idle" for session in listed)


def test_a_long_list_is_paged_without_gaps(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    model.script(*(says("ok") for _ in range(5)))
    client = daemon.connect()
    for n in range(5):
        session_id = open_session(client)
        prompt(client, session_id, f"number {n}")
        client.events_until("run_finished", session_id)

    pages: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.call("basis/session/list", {"limit": 2, **cursor})
        pages += [session["sessionId"] for session in page["sessions"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert len(pages) == len(set(pages)) == 5
    assert client.refusal("basis/session/list", {"cursor": "bogus"})["code"] == -32602


def test_history_pages_in_both_directions(daemon: DaemonProcess, model: ModelServer, open_session: OpenSession) -> None:
    model.script(*(says(f"answer {n}") for n in range(6)))
    client = daemon.connect()
    session_id = open_session(client)
    for n in range(6):
        prompt(client, session_id, f"question {n}")
        client.events_until("run_finished")
    history = {"sessionId": session_id, "limit": 5}

    newest = client.call("basis/session/history", history)
    older = client.call("basis/session/history", {**history, "cursor": newest["beforeCursor"]})
    oldest = client.call("basis/session/history", {**history, "direction": "after"})
    newer = client.call(
        "basis/session/history", {**history, "direction": "after", "cursor": oldest["afterCursor"], "limit": 100}
    )
    everything = [item["text"] for n in range(6) for item in ({"text": f"question {n}"}, {"text": f"answer {n}"})]

    assert [item["text"] for item in older["items"] + newest["items"]] == everything[-10:]
    assert [item["text"] for item in oldest["items"] + newer["items"]] == everything
    said_by = {item["kind"]: item.get("by", {}).get("client") for item in newest["items"]}
    assert said_by == {"user": "raw", "assistant": None}
    assert client.refusal("basis/session/history", {**history, "cursor": "entry-x"})["code"] == -32602


def test_a_session_may_be_given_its_id_and_only_a_proper_one(
    daemon: DaemonProcess, open_session: OpenSession, repo: Path
) -> None:
    client = daemon.connect()

    assert open_session(client, sessionId="my.own-id_1") == "my.own-id_1"
    for wrong in ("../up", ".hidden", "x-abc", "", "a" * 129, "a/b", "my.own-id_1"):
        error = client.refusal("basis/session/new", {"workspace": str(repo), "sessionId": wrong})
        assert error["code"] == -32602, wrong


def test_deleting_a_live_session_ends_its_turn_and_removes_it(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, data_dir: Path
) -> None:
    """DM-13; deleting one that isn't there succeeds."""
    model.script(writes())
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "write")
    opened_ask(client)

    client.call("basis/session/delete", {"sessionId": session_id})
    client.call("basis/session/delete", {"sessionId": session_id})

    assert client.call("basis/session/list")["sessions"] == []
    assert client.call("basis/ask/list")["asks"] == []
    assert client.refusal("basis/session/attach", {"sessionId": session_id})["data"]["kind"] == "no_such_session"
    assert list((data_dir / "store" / "agents").iterdir()) == []
    assert list((data_dir / "asks").glob("*.json")) == []
    states: list[str] = []
    while not states or states[-1] != "ended":
        states.append(client.events_until("info_changed")[-1]["event"]["state"]["kind"])
    assert states == ["waiting_person", "ended"]


def test_a_closed_session_can_be_attached_again(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    model.script(says("one"), says("two"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id, "go")
    seen = client.events_until("run_finished")
    client.events_until("info_changed")

    client.call("basis/session/close", {"sessionId": session_id})
    assert client.events_until("info_changed")[-1]["event"]["state"]["kind"] == "ended"
    answer = client.call("basis/session/attach", {"sessionId": session_id, "afterSeq": seen[0]["seq"] - 1})
    again = client.events_until("run_finished")

    assert answer["info"]["state"]["kind"] == "idle"
    assert again == seen
    prompt(client, session_id, "go on")
    assert text_of(client.events_until("run_finished")) == "two"


def test_a_renamed_session_tells_everybody(daemon: DaemonProcess, open_session: OpenSession) -> None:
    first, second = daemon.connect(), daemon.connect(name="second")
    session_id = open_session(first)
    second.call("basis/session/attach", {"sessionId": session_id})

    info = first.call("basis/session/rename", {"sessionId": session_id, "title": "A better name"})

    assert info["title"] == "A better name"
    assert second.events_until("info_changed")[-1]["event"] == {"type": "info_changed", "title": "A better name"}


def test_mode_never_allows_nothing_and_mode_always_asks_nothing(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """AP-22, AP-23, DM-18."""
    model.script(writes("never.txt"), says("no"), writes("always.txt"), says("yes"))
    client = daemon.connect()
    session_id = open_session(client)
    outcomes: list[bool] = []

    for mode in ("never", "always"):
        info = client.call("basis/session/setConfig", {"sessionId": session_id, "option": "mode", "value": mode})
        assert info["config"][0]["value"] == mode
        changed = client.events_until("config_changed")[-1]["event"]
        assert (changed["option"], changed["value"]) == ("mode", mode)
        prompt(client, session_id, "write")
        outcomes.append("ask_opened" in kinds(client.events_until("run_finished")))

    assert outcomes == [False, False]
    assert not (repo / "never.txt").exists()
    assert (repo / "always.txt").exists()
    wrong = {"sessionId": session_id, "option": "mode", "value": "yolo"}
    assert client.refusal("basis/session/setConfig", wrong)["code"] == -32602


def test_a_large_result_is_paged_by_its_id(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    (repo / "long.txt").write_text("".join(f"line {n}\n" for n in range(6000)))
    model.script(calls(tool("spawn", {"input": "!cat long.txt"})), says("long"))
    client = daemon.connect()
    session_id = open_session(client, config={"mode": "always"})
    prompt(client, session_id, "search")
    completed = next(
        event["event"] for event in client.events_until("run_finished") if event["event"]["type"] == "tool_completed"
    )

    page = client.call("basis/tool/result", {"resultId": completed["resultId"], "limit": 100})

    assert len(page["text"].encode()) <= 100
    assert page["totalBytes"] > 100
    assert client.refusal("basis/tool/result", {"resultId": "../../x/r-0"})["code"] == -32602


def test_an_ephemeral_session_leaves_nothing_behind(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, data_dir: Path
) -> None:
    model.script(says("gone soon"))
    client = daemon.connect()
    session_id = open_session(client, ephemeral=True)

    prompt(client, session_id, "say something")
    events = client.events_until("run_finished")

    assert text_of(events) == "gone soon"
    assert client.call("basis/session/list")["sessions"] == []
    agents = data_dir / "store" / "agents"
    assert not agents.exists() or list(agents.iterdir()) == []


def test_subscribers_are_told_of_every_change(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 3, `daemon/subscribe`."""
    model.script(writes(), says("written"))
    watcher, client = daemon.connect(name="watcher"), daemon.connect()
    snapshot = watcher.call("basis/daemon/subscribe")
    session_id = open_session(client)
    prompt(client, session_id, "write")
    ask = opened_ask(client)
    client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "deny"})
    client.events_until("run_finished")
    client.call("basis/session/delete", {"sessionId": session_id})

    heard: list[dict[str, Any]] = []
    while not heard or heard[-1]["kind"] != "session_removed":
        heard.append(watcher.next_notification("basis/daemon/event"))

    assert snapshot == {"workspaces": [], "sessions": [], "asks": []}
    told = [event["kind"] for event in heard]
    for kind in ("workspace_opened", "session_changed", "ask_opened", "ask_closed"):
        assert kind in told
    states = [event["session"]["state"] for event in heard if event["kind"] == "session_changed"]
    assert "waiting_person" in states and "working" in states


def test_a_prompt_sent_by_a_client_that_leaves_at_once_still_runs(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """DM-19: a disconnect cancels no turn."""
    model.script(says("nobody listens"))
    client, other = daemon.connect(), daemon.connect(name="other")
    session_id = open_session(client)
    other.call("basis/session/attach", {"sessionId": session_id})

    client.request("basis/session/prompt", {"sessionId": session_id, "input": [{"type": "text", "text": "go"}]})
    client.socket.close()

    assert text_of(other.events_until("run_finished")) == "nobody listens"


def test_a_stalled_client_neither_stalls_the_turn_nor_misses_anything(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """architecture.md 4: the journal is the buffer."""
    model.script(says(*["0123456789" * 100] * 3000))
    client, stalled = daemon.connect(), daemon.connect(name="stalled")
    session_id = open_session(client)
    stalled.call("basis/session/attach", {"sessionId": session_id})
    prompt(client, session_id, "talk")

    seen = client.events_until("run_finished")
    late = stalled.events_until("run_finished")

    assert late == seen


@pytest.mark.slow
def test_a_client_behind_what_is_kept_is_told_so_and_starts_from_a_snapshot(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 1, 4: `basis/session/lagged` with the last number it was sent; it re-attaches from there."""
    model.script(burst(says(*["x" * 4000] * 7000), chunk_bytes=64_000))
    client, stalled = daemon.connect(), daemon.connect(name="stalled")
    session_id = open_session(client)
    stalled.call("basis/session/attach", {"sessionId": session_id})
    turn = prompt(client, session_id, "talk without end")
    client.call("basis/session/detach", {"sessionId": session_id})
    client.call("basis/turn/wait", {"sessionId": session_id, "turnId": turn["turnId"]})

    seen = [0]
    while (message := stalled.receive())["method"] != "basis/session/lagged":
        seen.append(message["params"]["seq"])
    again = stalled.call("basis/session/attach", {"sessionId": session_id, "afterSeq": message["params"]["seq"]})

    assert seen == list(range(len(seen)))
    assert message["params"] == {"sessionId": session_id, "seq": seen[-1]}
    assert again["snapshot"]["reset"] is True
    assert len(again["snapshot"]["items"][-1]["text"]) == 4000 * 7000
    assert again["seq"] > seen[-1]


def test_comings_and_goings_are_told_without_flooding_the_journal(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    model.script(says("one"))
    client = daemon.connect(clientId="window-1")
    session_id = open_session(client)
    prompt(client, session_id, "go")
    client.events_until("run_finished")

    for _ in range(30):
        visitor = daemon.connect(name="visitor", clientId="window-2")
        visitor.call("basis/session/attach", {"sessionId": session_id})
        visitor.socket.close()
    client.call("basis/session/rename", {"sessionId": session_id, "title": "end"})
    events = client.events_until("info_changed")
    while "title" not in events[-1]["event"]:
        events += client.events_until("info_changed")

    assert [e["event"]["client"]["clientId"] for e in events if e["event"]["type"] == "client_attached"] == ["window-2"]


def test_fifty_prompts_at_once_run_one_after_the_other(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    model.script(*(says(f"answer {n}") for n in range(20)))
    client = daemon.connect()
    session_id = open_session(client)
    turns: list[str] = []
    lock = threading.Lock()

    def send(n: int) -> None:
        mine = daemon.connect(name=f"client {n}")
        turn = prompt(mine, session_id, f"prompt {n}")
        with lock:
            turns.append(turn["turnId"])

    threads = [threading.Thread(target=send, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    finished = [client.events_until("run_finished")[-1]["event"]["turnId"] for _ in range(20)]

    assert sorted(finished) == sorted(turns)
    assert len(client.call("basis/session/history", {"sessionId": session_id, "limit": 100})["items"]) == 40
