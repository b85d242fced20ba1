"""`basisctl run`: one prompt, its answer as it comes, and an exit code that says how it went."""

from __future__ import annotations

import json
import sys

from basis_client.errors import CONNECTION_LOST, ClientError, fields_of
from basisctl.attending import Attendance
from basisctl.opening import Usage, directory, find_session
from basisctl.screen import OutputGone
from basisctl.signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from basis_client.following import Follower
    from basisctl.watching import Watching

NOBODY_THERE = "nobody was at the terminal to be asked"


def main(args: Namespace) -> int:
    is_stdin_taken = args.prompt == ["-"]
    prompt = _read_prompt(args)
    schema = _read_schema(args)
    workspace = directory(args)
    with Signals() as signals:
        attendance = Attendance(args, signals=signals, workspace=workspace, is_stdin_taken=is_stdin_taken)
        try:
            return _Run(args, attendance, signals, prompt, schema).main()
        except OutputGone:
            attendance.screen.line("the output has no reader any more; the session goes on: basisctl attach")
            raise
        except KeyboardInterrupt:
            attendance.progress.say("")
            attendance.screen.line("left; what the daemon still does is in: basisctl sessions")
            raise


def _read_prompt(args: Namespace) -> str:
    if args.prompt != ["-"]:
        text = " ".join(args.prompt)
    elif sys.stdin is None:
        raise Usage("standard input is closed, so no prompt can be read from it")
    else:
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    # Arguments that aren't UTF-8 arrive as lone surrogates, which JSON can't carry.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip():
        raise Usage("the prompt is empty", 'say what to do: basisctl run "…"')
    return text


def _read_schema(args: Namespace) -> dict[str, Any] | None:
    """The schema the answer is to have. Raises `Usage` for a file that holds none."""
    if args.schema is None:
        return None
    if args.json:
        raise Usage("--schema prints JSON already", "leave one of --schema and --json out")
    try:
        with open(args.schema, encoding="utf-8") as file:
            schema = json.load(file)
    except OSError as error:
        raise Usage(f"can't read {args.schema}: {error.strerror}") from None
    except ValueError as error:
        raise Usage(f"{args.schema} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise Usage(f"{args.schema} holds no JSON schema", "a schema is an object")
    return fields_of(schema)


class _Run:
    def __init__(
        self, args: Namespace, attendance: Attendance, signals: Signals, prompt: str, schema: dict[str, Any] | None
    ) -> None:
        self._args = args
        self._attendance = attendance
        self._signals = signals
        self._prompt = prompt
        self._schema = schema

    def main(self) -> int:
        connection = self._attendance.connect()
        session = self._session(connection)
        session_id = str(session["sessionId"])
        follower, watching, _ = self._attendance.follow(connection, session_id)
        watching.begin(follower.attach(None if self._args.session else 0))
        self._attendance.progress.say("sending the prompt")
        self._signals.has_something_to_cancel = True
        turn_id = self._submit(follower, watching)
        ended = watching.until_finished(turn_id)
        if self._schema is not None and ended.status == "ok":
            self._print_output(follower, turn_id)
        follower.connection.close()
        return self._attendance.conclude(ended, session_id)

    def _session(self, connection: Any) -> dict[str, Any]:
        if self._args.session is None:
            return connection.request("basis/session/new", self._new_params())
        session = find_session(connection, self._args.session, self._attendance.workspace)
        config = self._config()
        provider = config.pop("provider", None)
        if provider not in (None, session.get("provider")):
            raise Usage(
                f"a conversation keeps its provider, and this one's is {session.get('provider') or 'not set up'}",
                "leave --provider out, or begin a conversation: leave --session out",
            )
        for option, value in config.items():
            params = {"sessionId": session["sessionId"], "option": option, "value": value}
            session = connection.request("basis/session/setConfig", params)
        return session

    def _submit(self, follower: Follower, watching: Watching) -> str:
        """Send the prompt exactly once, also when the daemon dies while it is sent. Returns the turn's id."""
        params = self._prompt_params(follower.session_id)
        try:
            accepted = follower.connection.request("basis/session/prompt", params)
        except ClientError as error:
            if error.kind != CONNECTION_LOST:
                raise
            self._attendance.progress.say("the daemon is gone: reconnecting")
            found = self._find_own_turn(follower, watching, error)
            if found is not None:
                return found
            accepted = follower.request("basis/session/prompt", params)
        self._attendance.progress.say("queued" if accepted.get("state") == "queued" else "working")
        return str(accepted["turnId"])

    def _find_own_turn(self, follower: Follower, watching: Watching, error: ClientError) -> str | None:
        """Reconnect, and look whether the prompt that was under way arrived."""
        try:
            follower.recover(error)
        except ClientError as refusal:
            # A session is not on disk before its first prompt is: ours was not accepted.
            if refusal.kind != "no_such_session" or self._args.session is not None:
                raise
            follower.connection.request("basis/session/new", {**self._new_params(), "sessionId": follower.session_id})
            watching.begin(follower.attach(0))
            return None
        return watching.find_turn_by(self._attendance.client_id)

    def _print_output(self, follower: Follower, turn_id: str) -> None:
        outcome = follower.request("basis/turn/wait", {"sessionId": follower.session_id, "turnId": turn_id})
        self._attendance.screen.answer(json.dumps(outcome.get("output"), indent=2) + "\n")

    def _new_params(self) -> dict[str, Any]:
        return {"workspace": self._attendance.workspace, "config": self._config()}

    def _config(self) -> dict[str, str]:
        """Session options that were named on the command line."""
        named = {
            "provider": self._args.provider,
            "model": self._args.model,
            "effort": self._args.effort,
            "mode": self._args.approve,
        }
        return {option: value for option, value in named.items() if value is not None}

    def _prompt_params(self, session_id: str) -> dict[str, Any]:
        args = self._args
        bounds = {
            "deadlineMs": args.deadline and args.deadline * 1000,
            "toolBudget": args.tool_budget,
            "tokenBudget": args.token_budget,
        }
        given = {name: value for name, value in bounds.items() if value is not None}
        params: dict[str, Any] = {"sessionId": session_id, "input": [{"type": "text", "text": self._prompt}]}
        if given:
            params["bounds"] = given
        if self._schema is not None:
            params["output"] = _output_request(self._schema)
        if not self._attendance.has_person:
            params["unattended"] = {"policy": "deny", "reason": NOBODY_THERE}
        return params


def _output_request(schema: dict[str, Any]) -> dict[str, Any]:
    """Ask for an answer of this schema from an agent that may work for it first."""
    return {
        "name": str(schema.get("title") or "answer"),
        "description": str(schema.get("description") or "The answer, as the schema describes it."),
        "schema": schema,
        "keepsTools": True,
    }
