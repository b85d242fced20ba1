"""What `run`, `attach` and `resume` share: a connection with the workspace open, a screen, a person who may be there.

Owns the wiring between connection, follower, painter and keyboard, and how an ended turn becomes an exit code.
"""

from __future__ import annotations

import os
import sys

from basis_client.blocking import Connection, open_connection
from basis_client.connect import ALWAYS, IF_IT_DIED, NEVER
from basis_client.errors import fields_of
from basis_client.following import Follower
from basisctl import exit_codes
from basisctl.opening import environment_snapshot, hello
from basisctl.painter import JsonPainter, Painter, TypedPainter
from basisctl.progress import Progress
from basisctl.questions import Questions
from basisctl.screen import Screen
from basisctl.spending import spent
from basisctl.visible import one_line, visible
from basisctl.watching import Ended, Watching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from basisctl.signals import Signals


class Attendance:
    """This process in front of one session."""

    def __init__(self, args: Namespace, *, signals: Signals, workspace: str, is_stdin_taken: bool = False) -> None:
        self._args = args
        self._signals = signals
        self.workspace = workspace
        self.screen = Screen(os.environ, is_verbose=args.verbose)
        self._keyboard = None
        if self.screen.err_is_terminal and (is_stdin_taken or (sys.stdin and sys.stdin.isatty())):
            from basisctl.keyboard import Keyboard

            self._keyboard = Keyboard.find(is_stdin_taken=is_stdin_taken)
        self.has_person = self._keyboard is not None
        self.progress = Progress(self.screen, can_answer=self.has_person)
        self._hello = hello(can_approve=self.has_person)
        self.client_id = self._hello.client_id

    def connect(self) -> Connection:
        """Connect and open the workspace, telling the person what is wrong with its files.

        What there is to say about its provider comes with the first events of a conversation.
        """
        self.progress.say("connecting")
        connection, opened = self._open()
        for problem in opened.get("diagnostics", ()):
            found = fields_of(problem)
            where = f"{found.get('file')}:{found.get('line', 1)}:{found.get('column', 1)}"
            self.screen.line(f"warning: {one_line(where)}: {visible(str(found.get('message', '')))}")
        return connection

    def follow(self, connection: Connection, session_id: str) -> tuple[Follower, Watching, Painter]:
        """Prepare to watch a session over `connection` and its successors."""
        follower = Follower(connection, session_id, dial=self._dial_again)
        questions = Questions(
            follower,
            screen=self.screen,
            progress=self.progress,
            keyboard=self._keyboard,
            client_id=self.client_id,
        )
        is_typed = getattr(self._args, "schema", None) is not None
        kind = JsonPainter if self._args.json else TypedPainter if is_typed else Painter
        painter = kind(self.screen, self.progress, client_id=self.client_id, shown_diffs=questions.shown_diffs)
        watching = Watching(
            follower,
            screen=self.screen,
            painter=painter,
            progress=self.progress,
            questions=questions,
            signals=self._signals,
        )
        follower.on_lost = watching.lost
        follower.on_attached = watching.attached_again
        return follower, watching, painter

    def conclude(self, ended: Ended, session_id: str) -> int:
        """Say what can be done next, and return the exit code."""
        code = exit_code(ended)
        if self._args.json:
            return code
        used = spent(ended.usage)
        if used and self.screen.tells_all:
            self.screen.line(self.screen.style("2", f"· {used}"))
        if ended.lacked_a_person:
            self.screen.line("some calls were denied because nobody was there to be asked")
            self.screen.line("next: run it in a terminal, or with --approve always if you trust what it will do")
        elif ended.status == "interrupted":
            self.screen.line(f"next: basisctl resume {session_id}")
        elif code != exit_codes.OK or self.screen.err_is_terminal:
            self.screen.line(self.screen.style("2", f'next: basisctl run --session {session_id} "…"'))
        return code

    def _dial_again(self) -> Connection:
        return self._open(start=IF_IT_DIED)[0]

    def _open(self, *, start: str = ALWAYS) -> tuple[Connection, dict[str, Any]]:
        connection = open_connection(
            self._hello,
            start=NEVER if self._args.no_start else start,
            on_starting=lambda: self.progress.say("starting the daemon"),
        )
        try:
            params = {"path": self.workspace, "env": environment_snapshot(os.environ)}
            return connection, connection.request("basis/workspace/open", params)
        except BaseException:
            connection.close()
            raise


def exit_code(ended: Ended) -> int:
    if ended.status == "cancelled" and ended.was_cancelled_here:
        return exit_codes.INTERRUPTED
    if ended.lacked_a_person:
        return exit_codes.NEEDS_APPROVAL
    if ended.stopped_by:
        return exit_codes.BOUND
    return exit_codes.OK if ended.status == "ok" else exit_codes.FAILED
