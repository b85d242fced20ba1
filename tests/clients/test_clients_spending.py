"""What was used, in words: never more than is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from basisctl.spending import dollars, money, spent, tokens
from support.command_line import Terminal, basisctl
from support.daemon import DaemonProcess
from support.model_server import ModelServer, says


def usage(total: int, priced: int, nano: int) -> dict[str, Any]:
    return {"inputTokens": total - 1, "outputTokens": 1, "pricedTokens": priced, "costNanoUsd": nano}


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (usage(12_345, 12_345, 41_000_000), "12.3k tokens, $0.0410"),
        (usage(900, 900, 0), "900 tokens, $0"),
        (usage(900, 0, 0), "900 tokens, cost unknown"),
        (usage(900, 400, 2_500_000_000), "900 tokens, over $2.50"),
        ({}, ""),
        (None, ""),
        ({"inputTokens": "many"}, ""),
    ],
)
def test_a_cost_is_told_as_far_as_it_is_known(used: Any, words: str) -> None:
    """Unknown says unknown, a part says that it is one, and free is known."""
    assert spent(used) == words


@pytest.mark.parametrize(
    ("nano", "shown"),
    [
        (0, "$0"),
        (1, "under $0.0001"),
        (100_000, "$0.0001"),
        (99_999_999, "$0.1000"),
        (123_456_789_012, "$123.46"),
        (1_234_500_000_000, "$1,234.50"),
        (10**400, f"${10**391:,}.00"),
    ],
)
def test_amounts_are_short_and_not_rounded_to_nothing(nano: int, shown: str) -> None:
    assert dollars(nano) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0"), (999, "999"), (1000, "1k"), (12_345, "12.3k"), (999_500, "1M")])
def test_numbers_of_tokens_are_short(count: int, shown: str) -> None:
    assert tokens(count) == shown


def test_an_old_conversation_has_no_known_cost() -> None:
    assert money({"inputTokens": 5, "outputTokens": 2}) == ""


def test_a_run_ends_with_what_it_cost_and_lists_show_it(
    clean_environment: Path, stopped_daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal only: scripts get the number with --json. It survives a restart."""
    config = clean_environment / "config_home" / "basis"
    config.mkdir(parents=True)
    monkeypatch.setenv("BASIS_SOCKET", stopped_daemon.socket)
    monkeypatch.setenv("BASIS_API_KEY", "sk-x")
    daemon = stopped_daemon.start()
    with ModelServer(says("Hi."), says("Ho.")) as model:
        monkeypatch.setenv("BASIS_BASE_URL", model.base_url)
        price = {"provider": f"openai@{model.base_url.rstrip('/')}", "model": "m", "input": "1000", "output": "1000"}
        (config / "prices.json").write_text(json.dumps({"schema": 1, "prices": [price]}))
        with Terminal(["run", "--model", "m", "hello"], cwd=workspace) as terminal:
            assert terminal.exit_code() == 0
            assert "19 tokens, $0.0190" in terminal.shown
        quiet = basisctl("run", "--session", "last", "again", cwd=workspace)
        assert quiet.returncode == 0 and "tokens" not in quiet.stderr
    daemon.restart()
    listed = basisctl("sessions", cwd=workspace).stdout.splitlines()
    assert "COST" in listed[0] and "$0.0380" in listed[1]
    assert "38 tokens, $0.0380" in basisctl("show", "last", cwd=workspace).stdout
    told = json.loads(basisctl("sessions", "--json", cwd=workspace).stdout)["usage"]
    assert (told["costNanoUsd"], told["pricedTokens"]) == (38_000_000, 38)
