"""Answers kept beyond a call, as a workspace's conversations have them (workspace.md 5.4 to 5.6)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.errors import SessionRulesNotCleared, UsageError
from basis_daemon.runtime.permissions import ApprovalAnswer, Authorization, AuthorizationRequest
from basis_daemon.runtime.rules import PermissionRuleAddress, RememberedRule, RuleKey
from basis_daemon.workspace.approval import ApprovalGate
from basis_daemon.workspace.run import Mode
from basis_protocol.events import PermissionResolved
from support.model_server import calls, says, tool
from support.sdk import Person, Scene, say, scene

pytestmark = pytest.mark.anyio


def write(path: str) -> Any:
    return calls(tool("write", {"path": path, "content": path}))


def command(line: str) -> Any:
    return calls(tool("spawn", {"input": f"!{line}"}))


def twice(*turns: Any) -> list[Any]:
    return [each for turn in turns for each in (turn, says("Done."))]


def rules_file(on: Scene) -> Path:
    return on.store / "rules.json"


async def resume(on: Scene, agent_id: str) -> Any:
    return await asyncio.to_thread(on.workspace.resume, agent_id)


async def test_an_answer_for_the_session_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """AP-14, Appendix C 9: no file of rules, and no trace of the answer anywhere below the store."""
    person = Person(ApprovalAnswer(False, "session", "canary-of-an-answer", '*"op":"write"*'))
    async with scene(tmp_path, *twice(write("a.txt"), write("b.txt"))) as on:
        run = on.workspace.prepare()
        await say(run, "Write.", person)
        await say(run, "Write.", person)
        run.close()

    assert len(person.asked) == 1
    assert not rules_file(on).exists()
    logs = [path.read_text() for path in on.store.rglob("*") if path.is_file() and path.suffix != ".jsonl"]
    assert not any("canary-of-an-answer" in text for text in logs)


async def test_an_answer_for_the_project_holds_for_its_next_conversation(tmp_path: Path) -> None:
    """AP-13, AP-18, SE-20: answered once, kept in the store, asked no more – also after a resume."""
    person = Person(ApprovalAnswer(True, "project"))
    async with scene(tmp_path, *twice(write("a.txt"), write("b.txt"), write("c.txt"))) as on:
        run = on.workspace.prepare()
        told = await say(run, "Write.", person)
        run.close()
        other = on.workspace.prepare()
        await say(other, "Write.", person)
        other.close()
        again = await resume(on, run.agent_id)
        await say(again, "Write.", person)
        again.close()

    assert len(person.asked) == 1 and told.one(PermissionResolved).rule_scope == "project"
    assert all((on.repo / name).exists() for name in ("a.txt", "b.txt", "c.txt"))
    (row,) = json.loads(rules_file(on).read_text())["rules"]
    assert row["project_id"] == on.workspace.identifier and row["rule"]["key"]["tool_name"] == "write"


async def test_a_command_allowed_for_the_project_lets_no_other_through(tmp_path: Path) -> None:
    """AP-19, AP-21, 5.7 (e): the next line is the same command and one more, and a person is asked about it."""
    person = Person(ApprovalAnswer(True, "project", pattern="touch *"))
    script = twice(command("touch one"), command("touch two"), command("touch three; rm README.md"))
    async with scene(tmp_path, *script) as on:
        run = on.workspace.prepare()
        await say(run, "Run.", person)
        await say(run, "Run.", person)
        person.answer = ApprovalAnswer(reason="no")
        await say(run, "Run.", person)
        run.close()

    assert [request.input["body"] for request in person.asked] == ["touch one", "touch three; rm README.md"]  # type: ignore[index]
    assert (on.repo / "two").exists() and (on.repo / "README.md").exists() and not (on.repo / "three").exists()


async def test_an_allowed_command_covers_commands_and_nothing_else(tmp_path: Path) -> None:
    """AP-21, AP-30: what is offered for `spawn` names commands and the place they run in."""
    person = Person(ApprovalAnswer(reason="no"))
    async with scene(tmp_path, *twice(command("git status -s"))) as on:
        run = on.workspace.prepare()
        await say(run, "Run.", person)
        run.close()

    (request,) = person.asked
    assert [(offer.scope, offer.covered) for offer in request.offers] == [
        ("session", "every command"),
        ("project", "`git status …`"),
        ("global", "`git status …`"),
    ]
    assert all('"mode":"command","target":"local"' in str(offer.pattern) for offer in request.offers)


# --- resuming ---


async def test_a_resume_clears_the_sessions_stored_rules_and_no_others(tmp_path: Path) -> None:
    """AP-16, AP-18: rows of older versions, of this one conversation."""
    async with scene(tmp_path, *twice(write("a.txt"), write("b.txt"))) as on:
        one, other = on.workspace.prepare(), on.workspace.prepare()
        for run in (one, other):
            await say(run, "Write.")
            for scope in ("session", "project", "global"):
                await asyncio.to_thread(run.rules.remember_rule, RememberedRule("edit", True, scope=scope))  # type: ignore[arg-type]
        one.close()

        again = await resume(on, one.agent_id)

        assert [rule.scope for rule in await asyncio.to_thread(again.rules.remembered_rules)] == ["project", "global"]
        scopes = [rule.scope for rule in await asyncio.to_thread(other.rules.remembered_rules)]
        assert scopes == ["session", "project", "global"]
        again.close()
        other.close()


async def test_a_resume_that_cannot_clear_them_fails_and_lets_go(tmp_path: Path) -> None:
    """AP-17, SE-26: the error names the conversation and the file; corrected, it can be resumed."""
    async with scene(tmp_path, *twice(write("a.txt"))) as on:
        run = on.workspace.prepare()
        await say(run, "Write.")
        run.close()
        await asyncio.to_thread(rules_file(on).write_text, "{not json")

        with pytest.raises(SessionRulesNotCleared, match=run.agent_id) as caught:
            await resume(on, run.agent_id)

        assert caught.value.hint is not None and str(rules_file(on)) in caught.value.hint
        assert await asyncio.to_thread(rules_file(on).read_text) == "{not json"
        await asyncio.to_thread(rules_file(on).unlink)
        (await resume(on, run.agent_id)).close()


async def test_a_new_conversation_with_damaged_rules_runs_nothing_unasked(tmp_path: Path) -> None:
    """SE-26, Appendix C 8: refused by name; what is answered for the session beforehand still works."""
    person = Person(ApprovalAnswer(True, "session"))
    async with scene(tmp_path, *twice(write("a.txt"), write("b.txt"))) as on:
        run = on.workspace.prepare()
        await say(run, "Write.", person)
        await asyncio.to_thread(rules_file(on).write_text, '{"schema":1,"rules":')
        await say(run, "Write.", person)
        fresh = on.workspace.prepare()
        on.server.script(*twice(write("c.txt")))
        await say(fresh, "Write.", person)
        run.close()
        fresh.close()

    assert (on.repo / "b.txt").exists() and not (on.repo / "c.txt").exists()
    assert "rules.json" in str(list(on.server.requests[-1].tool_results.values())[-1])


# --- one session's own authorizer ---


class Only:
    """Allows one tool, refuses the others, and asks nobody."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.judged: list[AuthorizationRequest] = []

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        self.judged.append(request)
        return Authorization("allow") if request.tool_name == self.name else Authorization("deny", "not mine")


async def test_a_run_with_its_own_authorizer_asks_no_other(tmp_path: Path) -> None:
    """AP-31, SE-5, TL-22: total – reads too – and live only; a resumed run is guarded as before."""
    person, only = Person(), Only("write")
    reads = calls(tool("read", {"path": "README.md"}))
    async with scene(tmp_path, *twice(write("a.txt"), reads, write("b.txt"))) as on:
        run = on.workspace.prepare().with_tool_authorizer(only)
        run.mode = "never"
        await say(run, "Write.", person)
        await say(run, "Read.", person)
        run.close()
        again = await resume(on, run.agent_id)
        await say(again, "Write.", person)
        again.close()

    assert [request.tool_name for request in only.judged] == ["write", "read"]
    assert (on.repo / "a.txt").exists() and len(person.asked) == 1
    judged = only.judged[0]
    assert judged.agent_id == run.agent_id and judged.agent_name and judged.model == "scripted"
    assert judged.history_len > 0 and judged.working_directory == on.repo
    assert judged.raw_input == {"path": "a.txt", "content": "a.txt"}
    assert judged.spec.capabilities == {"filesystem_write"} and judged.spec.approval == "filesystem"
    assert "content" not in judged.preparation.structured_input


async def test_a_runtimes_own_authorizer_gives_way_to_the_sessions_mode(tmp_path: Path) -> None:
    """AP-24: what has to hold everywhere is a hook's to say; those are asked ahead of any authorizer."""
    person = Person()

    def shape(builder: Any) -> Any:
        return builder.with_runtime_builder(builder.runtime.with_tool_authorizer(Only("nothing")))

    async with scene(tmp_path, *twice(write("a.txt")), shape=shape) as on:
        run = on.workspace.prepare()
        await say(run, "Write.", person)
        run.close()

    assert len(person.asked) == 1 and (on.repo / "a.txt").exists()


async def test_whoever_else_uses_a_workspaces_runtime_is_asked_too(tmp_path: Path) -> None:
    """AP-25: a conversation on the runtime itself, which names no authorizer, runs nothing unasked."""
    async with scene(tmp_path) as on:
        assert isinstance(on.workspace.runtime.authorizer, ApprovalGate)


async def test_the_authorizer_is_chosen_before_the_first_turn(tmp_path: Path) -> None:
    """AP-31."""
    async with scene(tmp_path, says("Hello.")) as on:
        run = on.workspace.prepare()
        await say(run, "Hello.")
        with pytest.raises(UsageError, match="turn has begun"):
            run.with_tool_authorizer(Only("write"))
        run.close()


async def test_what_was_answered_for_the_session_can_be_forgotten(tmp_path: Path) -> None:
    """AP-32: that scope, and no other."""
    person = Person(ApprovalAnswer(True, "session"))
    async with scene(tmp_path, *twice(write("a.txt"), write("b.txt"))) as on:
        run = on.workspace.prepare()
        await asyncio.to_thread(run.rules.remember_rule, RememberedRule("edit", True, scope="project"))
        await say(run, "Write.", person)
        run.forget_session_answers()
        await say(run, "Write.", person)
        run.forget_session_answers()
        assert [rule.scope for rule in await asyncio.to_thread(run.rules.remembered_rules)] == ["project"]
        run.close()

    assert len(person.asked) == 2


@pytest.mark.parametrize(("mode", "asked"), [("always", 0), ("prompt", 1), ("never", 0)])
async def test_a_mode_is_read_at_every_call_and_a_refusal_outranks_it(tmp_path: Path, mode: Mode, asked: int) -> None:
    """AP-22, AP-23, AP-26, AP-29: `always` lifts no remembered refusal, `never` is lifted by no remembered allow."""
    person = Person(ApprovalAnswer(True))
    async with scene(tmp_path, *twice(write("a.txt"), write("b.txt"))) as on:
        run = on.workspace.prepare()
        run.mode = mode
        await say(run, "Write.", person)
        assert (on.repo / "a.txt").exists() is (mode != "never") and len(person.asked) == asked
        verdict = mode == "never"
        await asyncio.to_thread(run.rules.remember_rule, RememberedRule("write", verdict, scope="global"))
        await say(run, "Write.", person)
        run.close()

    assert not (on.repo / "b.txt").exists() and len(person.asked) == asked


async def test_a_question_stays_under_the_mode_it_was_asked_in(tmp_path: Path) -> None:
    """AP-27, AP-29: switched while it is open, the mode governs the next call."""

    class Switching(Person):
        async def approve(self, request: Any) -> ApprovalAnswer:
            run.mode = "never"
            return await super().approve(request)

    person = Switching()
    async with scene(tmp_path, *twice(write("a.txt"), write("b.txt"))) as on:
        run = on.workspace.prepare()
        with anyio.fail_after(10):
            await say(run, "Write.", person)
            await say(run, "Write.", person)
        run.close()

    assert (on.repo / "a.txt").exists() and not (on.repo / "b.txt").exists()


# --- explaining ---


async def test_a_call_is_explained_by_whoever_decides_it(tmp_path: Path) -> None:
    """Rule, mode, policy, tool or person: named, with the file; nothing is asked, run or written for it."""
    edit = {"path": "README.md", "content": "x"}
    async with scene(tmp_path) as on:
        run = on.workspace.prepare()

        async def told(name: str = "write", input: dict[str, Any] = edit) -> tuple[str, str, str]:
            found = await run.explain_call(name, input)
            return found.outcome, found.decided_by, found.why

        assert await told() == ("prompt", "person", "no remembered answer covers it")
        assert (await told("read", {"path": "README.md"}))[:2] == ("allow", "authorizer")
        assert (await told("nothing"))[:2] == ("deny", "tool")
        assert (await told("write", {"path": 7}))[:2] == ("deny", "tool")
        assert (await told("write", {"path": "/etc/passwd", "content": "x"}))[:2] == ("deny", "tool")

        run.rules.remember(RememberedRule("write", True))
        await asyncio.to_thread(run.rules.remember_rule, RememberedRule("write", False, scope="global"))
        found = await run.explain_call("write", edit)
        assert (found.outcome, found.decided_by, found.file) == ("allow", "rule", None)
        assert [(loser.rule.scope, loser.why) for loser in found.losers] == [
            ("global", "`process` comes before `global`")
        ]
        await asyncio.to_thread(run.rules.revoke_rule, PermissionRuleAddress("process", RuleKey("write")))
        found = await run.explain_call("write", edit)
        assert (found.outcome, found.decided_by, found.file) == ("deny", "rule", str(rules_file(on)))

        await asyncio.to_thread(run.rules.clear_scope, "global")
        run.mode = "always"
        assert (await told())[:2] == ("allow", "mode")
        run.mode = "never"
        assert await told() == ("deny", "mode", "the session's mode `never` allows no changes")
        run.mode = "prompt"
        await asyncio.to_thread(rules_file(on).write_text, "{")
        assert (await told())[:2] == ("deny", "rules_file")

        assert not run.is_persisted and (on.repo / "README.md").read_text() != "x"
        run.close()


async def test_a_line_is_explained_command_by_command(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        run = on.workspace.prepare()
        run.rules.remember(RememberedRule("spawn", True, '*"body":"git status *"*'))

        half = await run.explain_call("spawn", {"input": "!git status && ls"})
        hidden = await run.explain_call("spawn", {"input": "!git status > x"})
        run.close()

    assert half.outcome == "prompt" and half.uncovered == ("ls",)
    assert [loser.why for loser in half.losers] == ["it covers a part of the line only: git status"]
    assert hidden.outcome == "prompt" and "redirections" in hidden.losers[0].why
