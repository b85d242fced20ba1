"""A real Neovim with the plugin and a UI attached, seen and driven as a person does.

Owns starting it, typing, and waiting for what the screen or a buffer shows. Neovim comes from a wheel; where it can't
run, tests skip with the reason.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pynvim
import pytest

PLUGIN = Path(__file__).resolve().parents[2] / "editors" / "nvim"
WAIT_S = 15.0
ROWS, COLUMNS = 30, 110


@lru_cache
def find_nvim() -> str:
    """The Neovim to test with: `BASIS_TEST_NVIM`, else the one of this environment. Never just any from PATH."""
    named = os.environ.get("BASIS_TEST_NVIM") or str(Path(sys.executable).with_name("nvim"))
    program = shutil.which(named)
    if program is None:
        pytest.skip(f"there is no Neovim at {named}")
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except OSError as error:
        pytest.skip(f"{program} does not run: {error}")
    if version.returncode != 0:
        pytest.skip(f"{program} does not run: {version.stderr.strip()}")
    return program


def arguments(*extra: str) -> list[str]:
    """How Neovim is started: nothing of the person's own, and the plugin."""
    return ["--clean", "-i", "NONE", "-n", "--cmd", f"lua vim.opt.rtp:prepend([[{PLUGIN}]])", *extra]


class Nvim:
    """One Neovim. `environment` is all of its environment; it works in `directory`."""

    def __init__(self, directory: Path, environment: dict[str, str], *extra: str) -> None:
        settings = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", "-i", "-C", str(directory), *settings, find_nvim(), "--embed", "--headless"]
        self.api: Any = pynvim.attach("child", argv=[*command, *arguments(*extra)])
        self.api.ui_attach(COLUMNS, ROWS, rgb=True, ext_linegrid=True)
        self.pid: int = self.api.funcs.getpid()
        self._is_open = True

    def __enter__(self) -> "Nvim":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- doing ---

    def command(self, line: str) -> None:
        self.api.command(line)

    def type(self, keys: str) -> None:
        """Press keys; they are taken some time after this returns."""
        self.api.input(keys)

    def lua(self, code: str, *args: object) -> Any:
        return self.api.exec_lua(code, *args)

    def ask(self, text: str) -> None:
        """Open the chat, write a prompt and send it."""
        self.command("Basis chat")
        self.type(f"i{text}<Esc><CR>")

    def quit(self) -> None:
        """`:qa`, as a person leaves."""
        self._end("qa")

    def close(self) -> None:
        self._end("qa!")

    def _end(self, how: str) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            self.api.command(how)
        except (OSError, EOFError):
            pass  # it is gone before it can answer
        finally:
            self.api.close()

    # --- seeing ---

    def screen(self) -> str:
        """What is on the screen, floats and bars included."""
        self.api.command("redraw!")
        return "\n".join(self.api.exec_lua(_SCREEN))

    def transcript(self) -> str:
        """All of the transcript's buffer."""
        return "\n".join(self.api.exec_lua(_LINES, "basis-chat"))

    def prompt(self) -> str:
        return "\n".join(self.api.exec_lua(_LINES, "basis-prompt"))

    def state(self) -> str:
        return self.lua("return require('basis').statusline()")

    def messages(self) -> str:
        return self.api.command_output("messages")

    def wait(self, what: Callable[[], object], describe: Callable[[], str] | None = None) -> Any:
        """Wait until `what()` is true, and return it. Neovim is asked for nothing but that."""
        deadline = time.monotonic() + WAIT_S
        while not (result := what()):
            if time.monotonic() > deadline:
                shown = describe() if describe else self.screen()
                log = self.lua("return table.concat(require('basis.say').logged(), '\\n')")
                shown = "\n".join(line[:200] for line in shown.splitlines()[-100:])
                raise AssertionError(f"it did not come to that:\n{shown}\n{self.messages()}\n{log}")
            # A screen has no event that says what a person would see on it.
            time.sleep(0.02)
        return result

    def wait_screen(self, *texts: str) -> str:
        """Wait until the screen shows all of `texts`."""
        return self.wait(lambda: s if all(t in (s := self.screen()) for t in texts) else "", self.screen)

    def wait_transcript(self, *texts: str) -> str:
        return self.wait(lambda: s if all(t in (s := self.transcript()) for t in texts) else "", self.transcript)

    def wait_end(self, text: str) -> None:
        """Wait until a transcript too long to be fetched again and again ends with `text`, or a little after it."""
        self.wait(lambda: text in "\n".join(self.lua(_END)))

    def wait_state(self, text: str) -> None:
        self.wait(lambda: self.state() == f"basis: {text}", self.state)


_SCREEN = """
local rows = {}
for row = 1, vim.o.lines do
  local cells = {}
  for column = 1, vim.o.columns do
    cells[column] = vim.fn.screenstring(row, column)
  end
  rows[row] = table.concat(cells)
end
return rows
"""

_END = """
local buffer = vim.fn.bufnr("basis://chat")
return vim.api.nvim_buf_get_lines(buffer, -4, -1, false)
"""

_LINES = """
for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
  if vim.bo[buffer].filetype == ... and vim.api.nvim_buf_is_loaded(buffer) then
    return vim.api.nvim_buf_get_lines(buffer, 0, -1, false)
  end
end
return {}
"""
