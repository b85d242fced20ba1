"""The packaged extension in a real VS Code window, with the real daemon and a scripted model.

Each test has a daemon, a folder, a server and a window of its own. Screenshots go to `build/artefacts/vscode`.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import vscode
from support.daemon import DaemonProcess
from support.model_server import ModelServer, calls, says, slow, tool
from support.model_turns import Gate
from support.vscode import CodeServer, Window

pytestmark = [
    pytest.mark.skipif(vscode.missing_tools(window=True) is not None, reason=vscode.missing_tools(window=True) or ""),
    pytest.mark.timeout(180),
]

OpenWindow = Callable[..., Window]
DAEMON = str(Path(sys.executable).with_name("basis-daemon"))
"""The window's PATH is that of a login shell, as in any VS Code; it has no virtual environment of ours."""

EDIT = {"path": "a.txt", "old": "beta", "new": "BETA"}


@pytest.fixture(scope="module")
def vsix() -> Path:
    return vscode.package()


@pytest.fixture
def server(
    vsix: Path, environment: dict[str, str], clean_environment: Path, request: pytest.FixtureRequest
) -> Iterator[CodeServer]:
    settings = getattr(request, "param", {})
    server = CodeServer(clean_environment / "vs", environment, settings or {}, trust=settings is not None)
    yield server
    server.close()


@pytest.fixture
def open_window(server: CodeServer, repo: Path, request: pytest.FixtureRequest) -> Iterator[OpenWindow]:
    """Opens windows on the repository; they close with the test."""
    opened: list[Window] = []

    def start(name: str = "") -> Window:
        window = Window(server, repo, name=f"{request.node.name.removeprefix('test_')[:50]}{name}")
        opened.append(window)
        return window

    yield start
    for window in opened:
        window.close()


def test_prompt_stream_approve_and_see_the_diff(
    daemon: DaemonProcess, model: ModelServer, open_window: OpenWindow, repo: Path
) -> None:
    """From an open folder to an approved edit, as a newcomer would do it."""
    gate = Gate()
    model.script(
        slow(says("first ", "second ", "third"), gate=gate, before=2), calls(tool("edit", EDIT)), says("Done.")
    )
    window = open_window()
    window("waitStatus", text="Basis: idle")
    window.command("Basis: Open Chat")

    window("prompt", text="say something")
    window("waitRow", text="first")
    window("waitStatus", text="Basis: working")
    window.screenshot("streaming")
    gate.open()
    window("waitRow", text="third")
    window("waitStatus", text="Basis: idle")

    window("prompt", text="change beta")
    window("waitStatus", text="waiting for you (1)")
    window("waitText", text="Basis asks", selector=".notification-toast")
    window("press", text="Allow", button="Show diff")
    window("waitText", text="proposed by Basis", selector=".tab")
    window("waitText", text="BETA", selector=".modified-in-monaco-diff-editor .view-lines")
    window.screenshot("diff")
    assert "BETA" not in (repo / "a.txt").read_text()

    window("clickIn", selector=".notification-toast", text="Basis asks", link="Allow")
    window("waitRow", text="Done.")
    window("waitGone", text="Basis asks", selector=".notification-toast")
    assert "BETA" in (repo / "a.txt").read_text()
    assert "allowed by you" in "\n".join(window("rows"))
    window.screenshot("approved")


def test_a_reloaded_window_is_where_it_was(
    daemon: DaemonProcess, model: ModelServer, open_window: OpenWindow, repo: Path
) -> None:
    """Session, unsent draft and pending ask are back; another client's answer closes the ask and the turn goes on."""
    model.script(calls(tool("edit", EDIT)), says("Done while nobody looked."))
    window = open_window()
    window.command("Basis: Open Chat")
    window("prompt", text="change beta")
    window("waitStatus", text="waiting for you (1)")
    window("type", text="and then the\nsecond thing")
    window("reload")

    window("waitStatus", text="waiting for you (1)")
    window("waitRow", text="change beta")
    window("waitDraft", text="and then the\nsecond thing")
    window("waitText", text="Basis asks", selector=".notification-toast")
    window.screenshot("reloaded")

    other = daemon.connect(name="nvim@elsewhere", kind="nvim")
    [ask] = other.call("basis/ask/list")["asks"]
    other.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})

    window("waitRow", text="allowed by nvim@elsewhere")
    window("waitStatus", text="answered by nvim@elsewhere")
    window("waitGone", text="Basis asks", selector=".notification-toast")
    window("waitRow", text="Done while nobody looked.")
    assert [row for row in window("rows") if "change beta" in row] == ["you\nchange beta"]
    window.screenshot("answered-elsewhere")


@pytest.mark.parametrize("server", [{"basis.daemon.autoStart": False}], indirect=True)
def test_a_daemon_killed_in_mid_answer_is_noticed_and_the_window_carries_on(
    daemon: DaemonProcess, model: ModelServer, open_window: OpenWindow
) -> None:
    """A banner while it is gone; then the same conversation, nothing twice, and the turn can be resumed."""
    gate = Gate()
    model.script(slow(says("Half an ", "answer."), gate=gate, before=1), says("The whole answer."))
    window = open_window()
    window("waitStatus", text="Basis: idle")
    window.command("Basis: Open Chat")
    window("prompt", text="one")
    window("waitRow", text="Half an")
    model.wait_request(0)

    daemon.kill()
    window("waitBanner", text="Disconnected", timeoutMs=2000)
    window("waitStatus", text="Basis: disconnected")
    window.screenshot("lost")
    gate.open()

    daemon.start()
    window("waitNoBanner")
    window("waitStatus", text="Basis: interrupted")
    window.command("Basis: Resume Interrupted Turn")
    window("waitRow", text="The whole answer.")
    window("waitStatus", text="Basis: idle")
    rows = window("rows")
    assert len([row for row in rows if row == "you\none"]) == 1
    assert len([row for row in rows if "The whole answer." in row]) == 1
    assert not [message for message in window("messages") if message.startswith("dialog")]
    window.screenshot("back")


@pytest.mark.parametrize("server", [{"basis.daemon.path": DAEMON}], indirect=True)
def test_the_daemon_is_started_when_it_is_needed_and_again_when_it_died(
    stopped_daemon: DaemonProcess, model: ModelServer, open_window: OpenWindow
) -> None:
    """Opening a window starts nothing; opening the chat does."""
    model.script(says("Before."), says("After."))
    window = open_window()
    window("waitStatus", text="Basis: disconnected")
    assert not Path(stopped_daemon.socket).exists()

    window.command("Basis: Open Chat")
    window("prompt", text="one")
    window("waitRow", text="Before.")
    window("waitStatus", text="Basis: idle")
    first = stopped_daemon.dial().initialize()["daemon"]["pid"]
    window("watchBanner")
    os.kill(first, signal.SIGKILL)
    window("waitBannerSeen")
    window("waitNoBanner")
    window("prompt", text="two")
    window("waitRow", text="After.")
    client = stopped_daemon.dial()
    assert client.initialize()["daemon"]["pid"] != first
    client.call("basis/daemon/stop", {"mode": "now"})
    assert client.is_closed_by_daemon()


def test_hostile_and_huge_content_is_shown_and_never_run(
    daemon: DaemonProcess, model: ModelServer, open_window: OpenWindow
) -> None:
    """Markup, escape sequences, command links, a megabyte in one line, and more rows than a page should hold."""
    hostile = (
        "<img src=x onerror='window.owned=1'><script>window.owned=1</script>[x](command:workbench.action.quit)\x1b[2J"
    )
    model.script(says(hostile), says("x" * 1_000_000), says("The end."))
    window = open_window()
    window.command("Basis: Open Chat")
    for prompt, answer in (("one", "onerror"), ("two", "xxxxxx"), ("three", "The end.")):
        window("prompt", text=prompt)
        window("waitRow", text=answer)
        window("waitStatus", text="Basis: idle")

    seen = window("chatEvaluate", script="({owned: window.owned ?? null, images: document.images.length, "
                  "scripts: document.querySelectorAll('#rows script, #rows a').length, "
                  "length: document.getElementById('rows').innerText.length})")  # fmt: skip
    assert (seen["owned"], seen["images"], seen["scripts"]) == (None, 0, 0)
    assert seen["length"] < 20_000
    assert "␛[2J" in "\n".join(window("rows"))
    window("press", text="xxxxx", button="Show more")
    window("waitRow", text="936000 characters left")
    window.screenshot("hostile")


def test_a_selection_and_unsaved_text_go_along(
    daemon: DaemonProcess, model: ModelServer, open_window: OpenWindow, repo: Path
) -> None:
    """What the model is told of a buffer is what the person sees, not what the disk holds."""
    model.script(says("Seen."))
    window = open_window()
    window("openFile", name="a.txt")
    window("keys", keys=["Control+End"])
    window("write", text="typed and not saved")
    window.command("Basis: Add File to Chat")
    window("waitPromptFocused")
    window.command("Basis: Send Selection to Chat")
    window("prompt", text="what is this?")
    window("waitRow", text="Seen.")

    prompt = model.wait_request(0).prompt
    assert f"File {repo / 'a.txt'}:" in prompt
    assert prompt.count("typed and not saved") == 2
    assert "Selection in" in prompt
    assert "typed" not in (repo / "a.txt").read_text()
    window.screenshot("context")


@pytest.mark.parametrize("server", [None], indirect=True)
def test_restricted_mode_reads_and_does_nothing(
    daemon: DaemonProcess, model: ModelServer, open_window: OpenWindow
) -> None:
    """In a folder nobody trusts no workspace is opened and no prompt is sent."""
    window = open_window()
    window.command("Basis: Open Chat")
    window("waitBanner", text="Restricted Mode")
    window("prompt", text="run something")
    window("waitText", text="Restricted Mode: conversations can be read", selector=".notification-toast")
    window("waitDraft", text="run something")
    assert daemon.connect().call("basis/workspace/list")["workspaces"] == []
    assert model.requests == []
    window.screenshot("restricted")
