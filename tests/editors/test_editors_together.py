"""Neovim, VS Code and a terminal on one live session: each sees what the others do, and a killed daemon stops none."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import vscode
from support.command_line import Terminal
from support.daemon import DaemonProcess
from support.model_server import Gate, ModelServer, calls, says, slow, tool
from support.nvim import Nvim
from support.vscode import CodeServer, Window

pytestmark = [
    pytest.mark.skipif(vscode.missing_tools(window=True) is not None, reason=vscode.missing_tools(window=True) or ""),
    pytest.mark.timeout(180),
]


@pytest.fixture
def window(repo: Path, environment: dict[str, str], clean_environment: Path) -> Iterator[Window]:
    vscode.package()
    server = CodeServer(clean_environment / "vs", environment)
    try:
        opened = Window(server, repo, name="together")
        yield opened
        opened.close()
    finally:
        server.close()


def test_two_editors_and_a_terminal_share_a_session_through_a_kill(
    daemon: DaemonProcess,
    model: ModelServer,
    repo: Path,
    environment: dict[str, str],
    open_nvim: Callable[..., Nvim],
    window: Window,
) -> None:
    """Asked in Neovim, allowed in VS Code, watched in a terminal; killed in mid-stream, and all three carry on."""
    gate = Gate()
    edit = {"path": "a.txt", "old_string": "beta", "new_string": "BETA"}
    model.script(calls(tool("edit", edit)), slow(says("It is ", "done."), gate=gate, before=1), says("Carried on."))
    nvim = open_nvim()
    nvim.ask("change beta")
    nvim.wait_state("waiting for you (1)")
    [session] = daemon.connect(name="looker").call("basis/session/list")["sessions"]

    window.command("Basis: Open Chat")
    window("waitDraft", text="")
    window.command("Basis: Open Session…")
    window("pick", text="change beta")
    window("waitRow", text="change beta")
    window("waitStatus", text="waiting for you (1)")
    with Terminal(["attach", session["sessionId"]], cwd=repo, environ=environment) as terminal:
        terminal.until("edit a.txt")

        window("clickIn", selector=".notification-toast", text="Basis asks", link="Allow")

        nvim.wait_transcript("It is")
        window("waitRow", text="It is")
        terminal.until("It is")
        assert (repo / "a.txt").read_text() == "alpha\nBETA\ngamma\n"
        assert "answered by" in nvim.transcript() or "allowed by" in nvim.transcript()
        window.screenshot("streaming")

        daemon.kill()
        gate.open()
        nvim.wait_state("interrupted")
        window("waitStatus", text="Basis: interrupted")
        nvim.command("Basis resume")

        nvim.wait_transcript("Carried on.")
        window("waitRow", text="Carried on.")
        terminal.until("Carried on.")
        nvim.wait_state("idle")
        window("waitStatus", text="Basis: idle")
        window.screenshot("carried-on")

    rows = window("rows")
    assert nvim.transcript().count("❯ you\nchange beta") == sum(row == "you\nchange beta" for row in rows) == 1
    assert nvim.transcript().count("Carried on.") == sum("Carried on." in row for row in rows) == 1
    nvim.quit()
    last = daemon.connect(name="last")
    last.call("basis/daemon/stop", {"mode": "now"})
    assert last.is_closed_by_daemon()
