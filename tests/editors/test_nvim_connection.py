"""Neovim finds the daemon, starts it once, loses it and finds it again; nothing is lost and nothing shown twice."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from basis_protocol import address
from support.daemon import DaemonProcess
from support.model_server import Gate, ModelServer, burst, calls, says, slow, tool
from support.nvim import Nvim
from support.relay import Relay

OpenNvim = Callable[..., Nvim]
ADDRESS = "return { require('basis.address').socket(), require('basis.address').log() }"


PLACES: list[dict[str, str]] = [
    {},
    {"BASIS_SOCKET": " ./here/../there/d.sock "},
    {"BASIS_SOCKET": "/tmp/" + "deep/" * 30 + "daemon.sock", "XDG_RUNTIME_DIR": "HOME"},
    {"BASIS_SOCKET": "/tmp/" + "deeper/" * 60 + "dæmon.sock"},
    {"BASIS_DATA_DIR": "/tmp/elsewhere", "BASIS_SOCKET": ""},
    {"BASIS_DATA_DIR": "", "BASIS_SOCKET": "", "XDG_RUNTIME_DIR": "HOME"},
    {"BASIS_DATA_DIR": "", "BASIS_SOCKET": "", "XDG_RUNTIME_DIR": "/nonexistent", "XDG_DATA_HOME": "/tmp/x"},
    {"BASIS_DATA_DIR": "", "BASIS_SOCKET": "", "XDG_RUNTIME_DIR": "relative"},
]


def test_every_client_looks_for_the_daemon_in_the_same_place(
    open_nvim: OpenNvim, environment: dict[str, str], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`basis_protocol.address` and the plugin agree, whatever the environment."""
    monkeypatch.chdir(repo)
    nvim = open_nvim()
    usual = {**environment, "XDG_RUNTIME_DIR": "", "XDG_DATA_HOME": ""}
    for place in PLACES:
        environ = {
            **usual,
            **{name: environment["HOME"] if value == "HOME" else value for name, value in place.items()},
        }

        found = nvim.lua("for name, value in pairs(...) do vim.env[name] = value end " + ADDRESS, environ)

        assert found == [address.find_socket(environ), address.find_log(environ)], place


def test_many_neovims_at_once_start_one_daemon(
    open_nvim: OpenNvim, stopped_daemon: DaemonProcess, model: ModelServer
) -> None:
    """Each finds nobody and starts one; all end up on the same, which outlives them."""
    editors = [open_nvim() for _ in range(4)]
    for editor in editors:
        editor.command("Basis chat")
    for editor in editors:
        editor.wait_state("idle")

    pids = {editor.lua("return require('basis.client').daemon.pid") for editor in editors}

    assert len(pids) == 1
    for editor in editors:
        editor.quit()
    client = stopped_daemon.connect()
    assert client.call("basis/daemon/status")["pid"] in pids
    client.call("basis/daemon/stop", {"mode": "now"})
    assert client.is_closed_by_daemon()


def test_the_chat_can_be_written_in_before_there_is_a_daemon(
    open_nvim: OpenNvim, stopped_daemon: DaemonProcess, model: ModelServer
) -> None:
    """The prompt is sent once, as soon as somebody takes it."""
    model.script(says("at last"))
    nvim = open_nvim("--cmd", "lua require('basis').setup({ start = false })")
    nvim.ask("are you there?")
    nvim.wait_screen("✗ disconnected: no daemon is running", "sent as soon as possible", "are you there?")

    stopped_daemon.start()

    nvim.wait_screen("❯ you", "are you there?", "at last", "basis: idle")
    assert nvim.prompt() == ""
    assert len(model.requests) == 1


def test_a_daemon_that_cannot_be_started_is_told_with_the_way_out(open_nvim: OpenNvim) -> None:
    nvim = open_nvim("--cmd", "lua require('basis').setup({ cmd = { 'no-such-basis' } })")

    nvim.command("Basis chat")

    nvim.wait_screen("✗ disconnected", "── no-such-basis is not executable: install")


def test_a_killed_daemon_shows_within_two_seconds_and_the_conversation_goes_on(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer
) -> None:
    """Killed in the middle of an answer: a banner, then the same session, resumed, with every line once."""
    model.script(slow(says("first\n", "lost"), gate=Gate(), before=1), says("second"))
    nvim.lua("require('basis').setup({ start = false })")
    nvim.ask("go on")
    nvim.wait_transcript("first")

    daemon.kill()
    killed_at = time.monotonic()
    nvim.wait(lambda: nvim.state() in ("basis: connecting", "basis: disconnected"))
    nvim.wait_screen("disconnected")
    assert time.monotonic() - killed_at < 2
    daemon.start()

    nvim.wait_state("interrupted")
    nvim.command("Basis resume")
    nvim.wait_screen("second", "basis: idle")
    assert nvim.transcript().count("❯ you") == 1
    assert nvim.transcript().count("second") == 1


def test_a_killed_daemon_is_started_again_by_the_editor(nvim: Nvim, daemon: DaemonProcess, model: ModelServer) -> None:
    model.script(says("one"), says("two"))
    nvim.ask("first")
    nvim.wait_transcript("one")
    daemon.kill()
    nvim.wait_state("idle")

    nvim.ask("second")

    text = nvim.wait_transcript("two")
    assert [text.count(word) for word in ("first", "one", "second", "two")] == [2, 1, 1, 1]  # the title has the first
    assert nvim.lua("return require('basis.client').daemon.pid") != daemon.process.pid  # type: ignore[union-attr]
    daemon.dial().initialize()
    with_stop = daemon.connect()
    with_stop.call("basis/daemon/stop", {"mode": "now"})
    assert with_stop.is_closed_by_daemon()


def test_a_daemon_that_was_stopped_stays_stopped_until_somebody_wants_it(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer
) -> None:
    model.script(says("one"))
    nvim.command("Basis chat")
    nvim.wait_state("idle")

    assert daemon.terminate() == 0

    nvim.wait_screen("✗ disconnected")
    nvim.lua("vim.wait(700)")
    assert not os.path.exists(daemon.socket)
    nvim.ask("start again")
    nvim.wait_transcript("one")
    client = daemon.connect()
    client.call("basis/daemon/stop", {"mode": "now"})
    assert client.is_closed_by_daemon()


def test_what_happened_meanwhile_is_shown_once(
    open_nvim: OpenNvim, daemon: DaemonProcess, model: ModelServer, clean_environment: Path
) -> None:
    """A connection cut again and again in a long stream: what comes after a reconnection follows without a gap."""
    lines = [f"<{n}>\n" for n in range(3000)]
    gate = Gate()
    model.script(burst(slow(says(*lines), gate=gate, before=1500)))
    with Relay(clean_environment / "relay.sock", daemon.socket) as relay:
        nvim = open_nvim(BASIS_SOCKET=relay.path)
        nvim.ask("go")
        nvim.wait_transcript("<700>")
        relay.cut()
        nvim.wait_transcript("<1499>")
        relay.cut()
        gate.open()
        nvim.wait_transcript("<1700>")
        relay.cut()

        text = nvim.wait_transcript("<2999>")

        nvim.wait_state("idle")
    assert [line for line in text.splitlines() if line.startswith("<")] == [line.strip() for line in lines]


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_prompt_whose_answer_was_lost_is_neither_lost_nor_sent_twice(
    open_nvim: OpenNvim, daemon: DaemonProcess, model: ModelServer, clean_environment: Path, is_taken: bool
) -> None:
    """The connection ends between sending and the daemon's answer; whether the daemon had it shows afterwards."""
    model.script(says("one"), says("two"))
    with Relay(clean_environment / "relay.sock", daemon.socket) as relay:
        nvim = open_nvim(BASIS_SOCKET=relay.path)
        nvim.ask("first")
        nvim.wait_transcript("one")
        relay.hold(requests=not is_taken)
        nvim.ask("second")
        nvim.wait(lambda: nvim.prompt() == "")
        if is_taken:
            model.wait_request(1)
        relay.cut()

        if not is_taken:
            nvim.wait(lambda: nvim.prompt() == "second")
            assert len(model.requests) == 1
            nvim.type("<Esc><CR>")

        nvim.wait_transcript("second", "two")
        nvim.wait_state("idle")
        nvim.wait(lambda: nvim.prompt() == "")
        assert nvim.transcript().count("second") == 1
        assert len(model.requests) == 2


def test_quitting_leaves_the_turn_alone_and_returning_brings_everything_back(
    open_nvim: OpenNvim, daemon: DaemonProcess, model: ModelServer, repo: Path
) -> None:
    """The next Neovim has the same session, the answer that came meanwhile, the open question and the unsent draft."""
    gate = Gate()
    model.script(
        slow(says("working", " on") + calls(tool("write", {"path": "new.txt", "content": "x\n"})), gate=gate, before=1),
        says("finished"),
    )
    first = open_nvim()
    first.ask("begin")
    first.wait_transcript("working")
    first.type("iand then the täst")
    first.wait(lambda: "täst" in first.prompt())
    first.command("stopinsert")
    first.quit()
    gate.open()
    watcher = daemon.connect()
    while not (asks := watcher.call("basis/ask/list")["asks"]):
        time.sleep(0.02)

    second = open_nvim()
    second.command("Basis chat")

    second.wait_screen("basis asks", "+x", "waiting for you (1)")
    second.wait_transcript("begin", "working on")
    second.wait(lambda: second.prompt() == "and then the täst")
    second.lua("vim.wait(350)")
    second.command("Basis approve")
    second.wait_screen("finished", "basis: idle")
    assert asks[0]["sessionId"] == second.lua("return require('basis.layout').current().session.id")
    assert (repo / "new.txt").read_text() == "x\n"


def test_a_draft_typed_without_a_daemon_is_back_too(
    open_nvim: OpenNvim, stopped_daemon: DaemonProcess, model: ModelServer
) -> None:
    first = open_nvim("--cmd", "lua require('basis').setup({ start = false })")
    first.command("Basis chat")
    first.type("inot sent yet<Esc>")
    first.wait(lambda: first.prompt() == "not sent yet")
    first.quit()
    stopped_daemon.start()

    second = open_nvim()
    second.command("Basis chat")

    second.wait(lambda: second.prompt() == "not sent yet")


def test_an_editor_that_could_not_read_for_a_while_misses_nothing(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer
) -> None:
    """Stopped while more is written than the daemon keeps for one client: it is told, and asks for the rest."""
    messages = [f"<{n}>" + "x" * 50_000 + "\n" for n in range(200)]
    gate = Gate()
    model.script(burst(slow(says("begin\n", *messages, "the end"), gate=gate, before=1)))
    nvim.ask("go")
    nvim.wait_transcript("begin")
    os.kill(nvim.pid, signal.SIGSTOP)
    try:
        gate.open()
        model.wait_ending(0, timeout_s=30)
    finally:
        os.kill(nvim.pid, signal.SIGCONT)

    nvim.wait_state("idle")
    nvim.wait_end("the end")

    assert nvim.lua("return table.concat(require('basis.say').logged())").count("fell too far behind") > 0
    assert re.findall(r"<\d+>", nvim.transcript()) == [f"<{n}>" for n in range(200)]


def test_a_session_that_somebody_closed_is_opened_again_when_it_is_wanted(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer
) -> None:
    model.script(says("one"), says("two"))
    nvim.ask("first")
    nvim.wait_transcript("one")
    nvim.wait_state("idle")
    session = nvim.lua("return require('basis.layout').current().session.id")
    daemon.connect().call("basis/session/close", {"sessionId": session})
    nvim.wait_screen("· closed")

    nvim.ask("second")

    nvim.wait_screen("first", "one", "second", "two", "basis: idle")


def test_a_session_that_somebody_deleted_makes_room_for_another(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer
) -> None:
    """The prompt is not lost with it."""
    model.script(says("one"), says("two"))
    nvim.ask("first")
    nvim.wait_transcript("one")
    nvim.wait_state("idle")
    session = nvim.lua("return require('basis.layout').current().session.id")
    daemon.connect().call("basis/session/delete", {"sessionId": session})
    nvim.wait_screen("· closed")

    nvim.ask("second")

    nvim.wait(lambda: "one" not in nvim.transcript())
    nvim.wait_transcript("second", "two")


def test_two_neovims_show_the_same_stream(open_nvim: OpenNvim, daemon: DaemonProcess, model: ModelServer) -> None:
    gate = Gate()
    model.script(slow(says("one ", "two ", "three"), gate=gate, before=1))
    one, two = open_nvim(), open_nvim()
    one.ask("count")
    one.wait_transcript("one")
    two.command("Basis attach")
    two.wait_screen("count", "one", "basis: working")

    gate.open()

    one.wait_screen("one two three", "basis: idle")
    two.wait_screen("one two three", "basis: idle")


def test_the_daemon_gets_the_editors_environment(nvim: Nvim, model: ModelServer, repo: Path) -> None:
    """Commands run with it, without what Neovim sets for itself."""
    model.script(calls(tool("spawn", {"input": "!echo $BASIS_API_KEY-$FROM_EDITOR-$VIMRUNTIME- > out"})), says("done"))
    nvim.command("let $FROM_EDITOR = 'yes'")
    nvim.ask("go")
    nvim.wait_screen("basis asks")
    nvim.lua("vim.wait(350)")
    nvim.command("Basis approve")
    nvim.wait_transcript("done")

    assert (repo / "out").read_text().endswith("-yes--\n")
