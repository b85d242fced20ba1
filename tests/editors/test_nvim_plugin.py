"""The plugin as a piece of Neovim: what it costs to have, its options, help and health, and that it reads the wire."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.daemon import DaemonProcess
from support.model_server import ModelServer, calls, says, tool
from support.nvim import PLUGIN, Nvim, arguments, find_nvim

OpenNvim = Callable[..., Nvim]
ROOT = PLUGIN.parents[1]


def test_having_the_plugin_loads_nothing(open_nvim: OpenNvim) -> None:
    """Only the command is there; asking for the status line connects to nothing and loads no more than its module."""
    nvim = open_nvim()
    loaded = (
        "return vim.tbl_filter(function(name) return vim.startswith(name, 'basis') end, vim.tbl_keys(package.loaded))"
    )

    assert nvim.lua(loaded) == []
    assert nvim.api.funcs.exists(":Basis") == 2
    assert nvim.lua("return require('basis').statusline()") == "basis: disconnected"
    assert nvim.lua(loaded) == ["basis"]
    assert (
        nvim.lua("return #vim.tbl_filter(function(m) return m.desc == 'Basis' end, vim.api.nvim_get_keymap(''))") == 0
    )


def test_sub_commands_and_sessions_are_completed(nvim: Nvim, model: ModelServer) -> None:
    names = nvim.api.funcs.getcompletion("Basis ", "cmdline")
    model.script(says("hi"))
    nvim.ask("hello")
    nvim.wait_transcript("hi")
    nvim.lua("vim.ui.select = function() end")
    nvim.command("stopinsert | Basis sessions")
    session = nvim.lua("return require('basis.layout').current().session.id")

    nvim.wait(lambda: nvim.api.funcs.getcompletion("Basis attach ", "cmdline") == [session])

    assert {"chat", "send", "add", "sessions", "attach", "inbox", "approve", "reject", "stop", "log"} <= set(names)
    assert nvim.api.funcs.getcompletion("Basis st", "cmdline") == ["steer", "stop"]
    assert nvim.api.funcs.getcompletion("Basis approve ", "cmdline") == ["session", "project", "global"]


def test_an_option_that_is_wrong_is_named_and_left_at_its_default(open_nvim: OpenNvim) -> None:
    nvim = open_nvim()

    problems = nvim.lua(
        "return require('basis.config').set({ chat_sise = 1, when_busy = 'shout', start = 1, prompt_height = 9 })"
    )

    assert problems == [
        "start must be a boolean, not a number",
        "unknown option chat_sise (did you mean chat_size?)",
        "when_busy must be one of steer, queue",
    ]
    assert nvim.lua("local o = require('basis.config').get(); return { o.when_busy, o.prompt_height }") == ["steer", 9]


def test_every_option_and_sub_command_is_in_the_help(open_nvim: OpenNvim, tmp_path: Path) -> None:
    """`doc/basis.txt` has a tag for each, and `:help` finds it."""
    shutil.copytree(PLUGIN / "doc", tmp_path / "help" / "doc")
    nvim = open_nvim("-c", f"set rtp+={tmp_path / 'help'} | helptags {tmp_path / 'help' / 'doc'}")
    text = (PLUGIN / "doc" / "basis.txt").read_text()
    options = nvim.lua("return vim.tbl_keys(require('basis.config').schema)")
    commands = nvim.lua("return vim.tbl_keys(require('basis.commands').commands)")

    assert {f"*basis-option-{name}*" for name in options} == set(re.findall(r"\*basis-option-\w+\*", text))
    assert {f"*:Basis-{name}*" for name in commands} == set(re.findall(r"\*:Basis-\w+\*", text))
    assert max(len(line) for line in text.splitlines()) <= 78
    nvim.command("help basis")
    assert "basis.txt" in nvim.api.current.buffer.name
    nvim.command("help basis-option-when_busy")
    assert "when_busy" in nvim.api.current.line


def test_health_asks_the_daemon(nvim: Nvim, daemon: DaemonProcess) -> None:
    nvim.command("checkhealth basis")

    report = "\n".join(nvim.api.current.buffer)

    assert f"pid {daemon.pid}" in report
    assert "ms to answer" in report and daemon.socket in report
    assert "ERROR" not in report


def test_health_says_how_to_get_a_daemon(open_nvim: OpenNvim) -> None:
    """It starts none itself."""
    nvim = open_nvim("--cmd", "lua require('basis').setup({ cmd = { 'no-such-basis' }, colour = 1 })")

    nvim.command("checkhealth basis")

    report = "\n".join(nvim.api.current.buffer)
    assert "no daemon is running" in report and "basisctl daemon start" in report
    assert "no-such-basis is not executable" in report and "pipx install basis-daemon" in report
    assert "unknown option colour" in report


def test_the_log_shows_both_sides(nvim: Nvim, daemon: DaemonProcess) -> None:
    nvim.command("Basis chat")
    nvim.wait_state("idle")

    nvim.command("Basis log")

    text = "\n".join(nvim.api.current.buffer)
    assert "connected" in text and str(daemon.data / "log" / "daemon.log") in text


def test_golden_messages_are_read(open_nvim: OpenNvim) -> None:
    """Every message of `shared/golden` goes through the decoder in pieces; every event can be painted, every preview
    shown."""
    golden = {path.name: path.read_text() for path in sorted((ROOT / "shared" / "golden").glob("*.json"))}
    nvim = open_nvim()

    decoded = nvim.lua(
        """
        local framing, transcript = require("basis.framing"), require("basis.transcript")
        local paper = require("basis.paper").new()
        local view = transcript.new(paper, "nobody")
        local known = require("basis.protocol_gen").event_types
        local results, events = {}, {}
        local function painted(event)
          assert(known[event.type], event.type)
          events[event.type] = true
          view:take(event)
          local preview = event.preview or (event.ask and event.ask.preview)
          if preview then
            assert(#transcript.preview(preview) > 0)
          end
        end
        for name, text in pairs(...) do
          local decoder, bodies = framing.decoder(), {}
          local frame = framing.encode(text)
          for at = 1, #frame, 7 do
            local some, fault = decoder:feed(frame:sub(at, at + 6))
            assert(not fault, fault)
            vim.list_extend(bodies, some)
          end
          assert(#bodies == 1)
          local message = vim.json.decode(bodies[1], { luanil = { object = true, array = true } })
          results[name] = vim.json.encode(message)
          if name:match("^event%.") then
            painted(message)
          elseif name == "session.event.params.json" then
            painted(message.event)
          elseif name:match("^preview%.") then
            assert(#transcript.preview(message) > 0)
          elseif name == "session.attach.result.json" then
            view:reset(message.snapshot)
          end
        end
        return { results, vim.tbl_count(events), vim.tbl_count(known) }
        """,
        golden,
    )

    results, painted, known = decoded
    assert painted == known
    assert {name: without_nothing(json.loads(text)) for name, text in results.items()} == {
        name: without_nothing(json.loads(text)) for name, text in golden.items()
    }


def without_nothing(value: object) -> object:
    """`value` without what Lua can't tell apart: nulls are absent, and an empty object is an empty list."""
    if isinstance(value, dict):
        return {key: without_nothing(each) for key, each in value.items() if each is not None} or []
    if isinstance(value, list):
        return [without_nothing(each) for each in value]
    return value


def test_frames_that_are_none_are_refused(open_nvim: OpenNvim) -> None:
    faults = open_nvim().lua(
        """
        return vim.tbl_map(function(bytes)
          local bodies, fault = require("basis.framing").decoder():feed(bytes)
          return fault or bodies
        end, ...)
        """,
        [
            "nonsense\r\n\r\n",
            "Content-Length: x\r\n\r\n",
            "A: b\r\n\r\n",
            "Content-Length: 99999999999\r\n\r\n",
            "a" * 9000,
        ],
    )

    assert all(isinstance(fault, str) for fault in faults)


def test_a_newcomer_without_a_key_gets_to_an_approved_edit(
    open_nvim: OpenNvim, daemon: DaemonProcess, repo: Path
) -> None:
    """`docs/howto/neovim.md`, step by step; the rehearsal answers, and the chat says that no model is connected."""
    nvim = open_nvim(BASIS_BASE_URL="", BASIS_API_KEY="")
    nvim.command("Basis chat")
    nvim.wait_screen("basis: idle", "No model is connected")
    nvim.type("iwrite hello.txt: hello<Esc><CR>")
    nvim.wait_screen("basis asks", "+hello")
    assert not (repo / "hello.txt").exists()
    nvim.lua("vim.wait(350)")

    nvim.command("Basis approve")

    nvim.wait_transcript("allowed by you")
    nvim.wait_state("idle")
    assert (repo / "hello.txt").read_text().strip() == "hello"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")
def test_a_person_in_a_terminal_gets_an_edit_approved(
    daemon: DaemonProcess, model: ModelServer, environment: dict[str, str], repo: Path
) -> None:
    """The real terminal interface, with every key typed: open the chat, prompt, read the diff, approve, quit."""
    model.script(calls(tool("write", {"path": "new.txt", "content": "made here\n"})), says("It is written."))
    program = find_nvim()
    tmux = ["tmux", "-f", "/dev/null", "-S", str(Path(environment["HOME"]) / "tmux")]
    variables = [f"{name}={value}" for name, value in {**environment, "TERM": "xterm-256color"}.items()]
    command = ["env", "-i", *variables, program, *arguments("a.txt")]

    def run(*words: str) -> str:
        return subprocess.run([*tmux, *words], env=environment, capture_output=True, text=True, check=True).stdout

    def wait(*texts: str) -> str:
        deadline = time.monotonic() + 15
        while not all(text in (shown := run("capture-pane", "-p")) for text in texts):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)
        return shown

    run("new-session", "-d", "-x", "120", "-y", "32", "-c", str(repo), *command)
    try:
        wait("alpha")
        run("send-keys", ":Basis chat", "Enter")
        wait("basis: idle")
        run("send-keys", "i", "make a file", "Escape", "Enter")
        wait("basis asks", "+made here", "waiting for you (1)")
        assert not (repo / "new.txt").exists()
        time.sleep(0.4)  # an answer at once would count as given before the question was seen
        run("send-keys", ":Basis approve", "Enter")
        wait("It is written.", "allowed by you", "basis: idle")
        assert (repo / "new.txt").read_text() == "made here\n"
        run("send-keys", ":qa", "Enter")
        deadline = time.monotonic() + 10
        while subprocess.run([*tmux, "has-session"], capture_output=True, check=False).returncode == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True, check=False)
