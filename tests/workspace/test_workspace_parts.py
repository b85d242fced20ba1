"""The small parts of a workspace: prompt, roster, environment, budget, spec."""

import copy
from pathlib import Path

import pytest

from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.workspace.agents_md import ContextDocument, WorkspaceContext
from basis_daemon.workspace.budget import BudgetPool
from basis_daemon.workspace.environment import command_environment, minimal_environment, session_environment
from basis_daemon.workspace.prompt import Append, Replace, system_prompt
from basis_daemon.workspace.roster import ToolRoster
from basis_daemon.workspace.spec import RunSpec
from basis_protocol.events import Usage

CONTEXT = WorkspaceContext(Path("/w"), (ContextDocument(Path("/w/AGENTS.md"), "workspace", "be kind"),))


def test_the_system_prompt_is_the_repositorys_text_and_then_the_hosts() -> None:
    """CX-8, CX-10: nothing of our own."""
    assert system_prompt(CONTEXT, None) == CONTEXT.render()
    assert system_prompt(CONTEXT, Append(" be brief\n")) == f"{CONTEXT.render()}\n\n be brief\n"
    assert system_prompt(WorkspaceContext(), Append("be brief")) == "be brief"
    assert system_prompt(WorkspaceContext(), None) is None


def test_a_host_may_replace_the_repositorys_text() -> None:
    """CX-9: blank text is nothing."""
    assert system_prompt(CONTEXT, Replace("only this")) == "only this"
    assert system_prompt(CONTEXT, Replace(" \n")) is None
    assert system_prompt(CONTEXT, Append(" \n")) == CONTEXT.render()


def test_the_default_roster_hides_what_spawn_replaces_and_what_is_not_surfaced() -> None:
    """TR-1, TR-2."""
    roster = ToolRoster.default()

    assert all(roster(name) for name in ("read", "ls", "grep", "glob", "write", "edit", "spawn", "a_host_tool"))
    assert not any(roster(name) for name in ("shell", "background_run", "task", "idle", "team_send", "memory_search"))
    assert len(roster.hidden_tools) == 20


def test_a_roster_can_hide_more_or_offer_only_some() -> None:
    """TR-3."""
    assert not ToolRoster.default().hide(["write"])("write")
    only = ToolRoster.only(["read"])
    assert only("read") and not only("spawn")
    assert not only.hide(["read"])("read")


def test_commands_get_the_snapshot_without_credentials_and_foreign_runs() -> None:
    """protocol.md 6, DM-10."""
    snapshot = {
        "PATH": "/venv/bin:/bin",
        "VIRTUAL_ENV": "/venv",
        "BASIS_SOCKET": "/run/s",
        "BASIS_SESSION_ID": "other",
        "BASIS_TASK_ID": "other",
        "BASIS_PARENT_TASK_ID": "other",
        **dict.fromkeys(
            ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "BASIS_API_KEY"), "sk"
        ),
    }

    assert command_environment(snapshot) == {
        "PATH": "/venv/bin:/bin",
        "VIRTUAL_ENV": "/venv",
        "BASIS_SOCKET": "/run/s",
    }
    assert command_environment(snapshot, socket="/mine")["BASIS_SOCKET"] == "/mine"
    assert session_environment({"PATH": "/bin"}, "agent-1") == {"PATH": "/bin", "BASIS_SESSION_ID": "agent-1"}


def test_without_a_snapshot_commands_get_the_accounts_own_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol.md 6: nothing of the process that happens to run the daemon."""
    monkeypatch.setenv("CANARY", "leaked")
    monkeypatch.setenv("HOME", "/somewhere/else")

    environment = minimal_environment()

    assert "CANARY" not in environment and environment.get("HOME") != "/somewhere/else"
    assert environment["PATH"] and environment["LANG"] == "C.UTF-8"


def test_a_pool_is_one_counter_however_often_it_is_copied() -> None:
    """BP-1."""
    pool = BudgetPool(100)
    twin = copy.deepcopy(copy.copy(pool))

    assert twin.record(Usage(input_tokens=30, output_tokens=40)) == 70
    assert (pool.spent, pool.remaining, pool.is_exhausted) == (70, 30, False)
    assert twin == pool and hash(twin) == hash(pool) and pool != BudgetPool(100)
    pool.record(Usage(output_tokens=500))
    assert (pool.remaining, pool.is_exhausted) == (0, True)


def test_a_pool_is_attached_to_a_spec_or_to_a_turns_options() -> None:
    """BP-2."""
    pool = BudgetPool(100)

    assert pool.bounds(TurnOptions(tool_budget=3)) == TurnOptions(tool_budget=3, budget=pool)
    assert pool.spec("go") == RunSpec("go", budget=pool)


def test_a_string_is_a_spec() -> None:
    """RS-1, RS-2."""
    assert RunSpec.of("go") == RunSpec(prompt="go", session_name="basis run")
    assert RunSpec.of(None) == RunSpec.of("") == RunSpec()
