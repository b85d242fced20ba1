"""Answers that last, over the wire: given, shared, kept before they count, listed, forgotten, explained."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.daemon import DaemonProcess, OpenSession
from support.model_server import ModelServer, calls, says, tool
from support.raw_client import RawClient


def prompt(client: RawClient, session_id: str, text: str = "go", **params: Any) -> dict[str, Any]:
    block = {"type": "text", "text": text}
    return client.call("basis/session/prompt", {"sessionId": session_id, "input": [block], **params})


def opened_ask(client: RawClient) -> dict[str, Any]:
    return client.events_until("ask_opened")[-1]["event"]["ask"]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"]["type"] for event in events]


def writes(path: str) -> Any:
    return calls(tool("write", {"path": path, "content": "beta\n"}))


def runs(line: str) -> Any:
    return calls(tool("spawn", {"input": f"!{line}"}))


@pytest.fixture
def rules_file(data_dir: Path) -> Path:
    return data_dir / "store" / "rules.json"


def test_an_ask_offers_every_scope_and_says_what_it_covers(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """AP-21: ready to be buttons."""
    model.script(runs("git status -s"), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id)

    ask = opened_ask(client)

    assert {option["optionId"]: option["label"] for option in ask["options"]} == {
        "allow-once": "Allow",
        "deny-once": "Deny",
        "allow-session": "Allow every command in this session",
        "deny-session": "Deny every command in this session",
        "allow-project": "Allow `git status …` in this project",
        "deny-project": "Deny `git status …` in this project",
        "allow-global": "Allow `git status …` in every project",
        "deny-global": "Deny `git status …` in every project",
    }
    assert ask["preview"]["command"] == "git status -s"
    assert ask["preview"]["classification"]["intent"] == "read_only"


def test_an_answer_for_the_project_is_not_asked_in_its_next_session(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, rules_file: Path
) -> None:
    """SE-25, protocol.md 5: at once in a session that is open already, and after a restart in one that is not."""
    model.script(writes("b.txt"), says("done"), writes("c.txt"), says("done"))
    one, other = daemon.connect(), daemon.connect()
    first, second = open_session(one), open_session(other)
    prompt(one, first)
    ask = opened_ask(one)

    one.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow", "scope": "project"})
    resolved = [e["event"] for e in one.events_until("run_finished") if e["event"]["type"] == "permission_resolved"]
    prompt(other, second)
    events = other.events_until("run_finished")

    assert [event["ruleScope"] for event in resolved] == ["project"]
    assert "ask_opened" not in kinds(events) and (repo / "c.txt").exists()
    assert rules_file.stat().st_mode & 0o777 == 0o600

    daemon.restart()
    model.script(writes("d.txt"), says("done"))
    client = daemon.connect()
    prompt(client, open_session(client))
    assert "ask_opened" not in kinds(client.events_until("run_finished")) and (repo / "d.txt").exists()


def test_an_answer_counts_only_once_its_rule_is_kept(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, rules_file: Path
) -> None:
    """SE-16, D-92: whoever answers is told what is wrong, the ask still waits, and another answer is taken."""
    model.script(writes("b.txt"), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id)
    ask = opened_ask(client)
    rules_file.write_text("{")
    answer = {"askId": ask["askId"], "decision": "allow", "scope": "project"}

    refused = client.refusal("basis/ask/answer", answer)

    assert refused["data"]["kind"] == "corrupt_store" and str(rules_file) in refused["message"]
    assert [each["askId"] for each in client.call("basis/ask/list")["asks"]] == [ask["askId"]]
    assert not (repo / "b.txt").exists() and rules_file.read_text() == "{"
    rules_file.unlink()
    assert client.call("basis/ask/answer", answer) == {"outcome": "allowed"}
    client.events_until("run_finished")
    assert (repo / "b.txt").exists()


def test_a_pattern_that_does_not_cover_the_call_is_refused_and_may_be_corrected(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """SE-16, SE-23."""
    model.script(runs("touch one"), runs("touch two"), runs("touch three; touch four"), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id)
    answer = {"askId": opened_ask(client)["askId"], "decision": "allow", "scope": "project"}

    refused = client.refusal("basis/ask/answer", {**answer, "pattern": "toch *"})
    client.call("basis/ask/answer", {**answer, "pattern": "touch *"})
    client.events_until("run_finished")

    assert refused["data"]["kind"] == "operation_denied" and "toch *" in refused["message"]
    assert all((repo / name).exists() for name in ("one", "two", "three", "four"))
    (rule,) = client.call("basis/rule/list", {"workspace": str(repo)})["rules"]
    assert rule["pattern"] == '{"body":"touch *","cwd":"*","mode":"command","target":"local"}'


def test_an_answer_given_while_no_turn_runs_is_kept_when_the_turn_goes_on(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """SE-16: nobody waits for it after a restart, so its rule is kept by the turn that takes it up."""
    model.script(writes("b.txt"), says("done"))
    client = daemon.connect()
    prompt(client, open_session(client))
    ask = opened_ask(client)
    daemon.restart()
    client = daemon.connect()
    assert client.call("basis/rule/list", {"workspace": str(repo)})["rules"] == []

    client.call("basis/session/attach", {"sessionId": ask["sessionId"]})
    client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow", "scope": "project"})
    environment = {"path": str(repo), "env": {"PATH": "/usr/bin:/bin", "BASIS_BASE_URL": model.base_url}}
    client.call("basis/workspace/open", {**environment, "env": {**environment["env"], "BASIS_API_KEY": "k"}})  # type: ignore[dict-item]
    client.events_until("run_finished")

    assert (repo / "b.txt").exists()
    assert [rule["scope"] for rule in client.call("basis/rule/list", {"workspace": str(repo)})["rules"]] == ["project"]


def test_rules_are_listed_for_a_session_a_workspace_and_everywhere(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, rules_file: Path
) -> None:
    """SE-25: narrowest first; what is answered for the session is listed in that session only."""
    model.script(writes("a1"), runs("touch x"), calls(tool("edit", EDIT)), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id)
    for scope in ("global", "project", "session"):
        ask = opened_ask(client)
        client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "deny", "scope": scope, "reason": scope})
    client.events_until("run_finished")

    def listed(**where: str) -> list[str]:
        return [rule["scope"] for rule in client.call("basis/rule/list", where)["rules"]]

    assert listed(sessionId=session_id) == ["process", "project", "global"]
    assert listed(workspace=str(repo)) == ["project", "global"]
    assert listed(workspace=str(repo.parent)) == ["global"]
    assert listed() == ["global"]
    assert client.call("basis/rule/list")["file"] == str(rules_file)


EDIT = {"path": "a.txt", "edits": [{"old_string": "alpha", "new_string": "omega"}]}


def test_a_rule_that_is_forgotten_is_asked_about_again(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """SE-25: another's removal counts at once."""
    model.script(writes("b.txt"), says("done"), writes("c.txt"), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id)
    ask = opened_ask(client)
    client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow", "scope": "project"})
    client.events_until("run_finished")
    (rule,) = client.call("basis/rule/list", {"workspace": str(repo)})["rules"]

    other = daemon.connect()
    other.call("basis/rule/remove", {"rule": rule, "workspace": str(repo)})
    again = other.refusal("basis/rule/remove", {"rule": rule, "workspace": str(repo)})
    prompt(client, session_id)

    assert again["data"]["kind"] == "no_such_rule"
    assert opened_ask(client)["toolName"] == "write"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"rule": {"toolName": "write", "allow": True, "scope": "forever"}}, "rule.scope"),
        ({"rule": {"toolName": "write", "allow": True, "scope": "project"}, "workspace": "here"}, "workspace"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_field(
    daemon: DaemonProcess, params: dict[str, Any], field: str
) -> None:
    refused = daemon.connect().refusal("basis/rule/remove", params)
    assert refused["data"]["kind"] == "invalid_params" and refused["data"]["details"]["field"] == field


def test_a_call_is_explained_in_a_workspace_and_in_a_session(
    daemon: DaemonProcess, open_session: OpenSession, repo: Path, rules_file: Path
) -> None:
    """protocol.md 3: the deciding rule, its file, and why the others lose; or which other guard decides."""
    client = daemon.connect()
    session_id = open_session(client, config={"mode": "never"})
    allow = {"rule": {"key": {"tool_name": "write"}, "allow": True, "scope": "global"}}
    deny = {
        "rule": {"key": {"tool_name": "write"}, "allow": False, "scope": "project", "reason": "by hand only"},
        "project_id": f"basis:{repo}",
    }
    rules_file.write_text(json.dumps({"schema": 1, "rules": [allow, deny]}))
    call = {"tool": "write", "input": {"path": "b.txt", "content": "x"}}

    here = client.call("basis/rule/explain", {**call, "workspace": str(repo)})
    in_session = client.call("basis/rule/explain", {**call, "sessionId": session_id})
    reading = client.call("basis/rule/explain", {"tool": "read", "input": {"path": "a.txt"}, "workspace": str(repo)})

    assert (here["outcome"], here["decidedBy"], here["file"]) == ("deny", "rule", str(rules_file))
    assert here["rule"]["reason"] == "by hand only" and "by hand only" in here["why"]
    assert here["runnersUp"] == [
        {"rule": {"toolName": "write", "allow": True, "scope": "global"}, "why": "`project` comes before `global`"}
    ]
    assert (in_session["outcome"], in_session["decidedBy"]) == ("deny", "mode")
    assert (reading["outcome"], reading["decidedBy"]) == ("allow", "authorizer")
    assert client.call("basis/session/list")["sessions"] == [] and not (repo / "b.txt").exists()


@pytest.mark.parametrize(
    ("params", "field"),
    [({"input": []}, "input"), ({"input": {}}, "workspace")],
)
def test_what_cannot_be_explained_is_refused_by_field(
    daemon: DaemonProcess, params: dict[str, Any], field: str
) -> None:
    refused = daemon.connect().refusal("basis/rule/explain", {"tool": "write", **params})
    assert refused["data"]["details"]["field"] == field


def test_a_session_with_damaged_rules_says_which_file_and_is_not_resumed(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, rules_file: Path
) -> None:
    """AP-17 over the wire."""
    model.script(says("hello"))
    client = daemon.connect()
    session_id = open_session(client)
    prompt(client, session_id)
    client.events_until("run_finished")
    daemon.restart()
    rules_file.write_text("{")
    client = daemon.connect()

    refused = client.refusal("basis/session/attach", {"sessionId": session_id})

    assert refused["data"]["kind"] == "session_rules_not_cleared" and str(rules_file) in refused["data"]["hint"]
    rules_file.unlink()
    assert client.call("basis/session/attach", {"sessionId": session_id})["info"]["sessionId"] == session_id
