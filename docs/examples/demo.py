"""One prompt end to end, on this machine, with no key and no server: `make demo`.

Plays a person with two terminals, using nothing but `basisctl`. The temporary folder, the daemon and its end are
`stage.py`'s; this file is the play.
"""

import argparse
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from stage import Stage, Stop, Terminal, indented, until_dead

MODELS = Path(sys.prefix) / "pocket-models"
"""Where `make demo` keeps the pocket model, so that it is downloaded once and not at every performance."""

QUESTION = "Which port does server.py use?"
EDIT = "edit server.py: PORT = 8000 -> PORT = 9000"
CHECK = f"!{Path(sys.executable).name} check.py"

POCKET_SAID = """\
That was a real language model, running on this machine: {model}. It is very small. What it says
is its own and may well be wrong; nothing here depends on it."""


def say(title: str, text: str = "") -> None:
    print(f"\n== {title}", flush=True)
    if text:
        print(indented(text, mark="   "), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="One prompt end to end, with no key and no server.")
    parser.add_argument("--rehearsal-only", action="store_true", help="leave out what needs the pocket model")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    stage = Stage()
    try:
        perform(stage, with_pocket=not options.rehearsal_only)
    except Stop as problem:
        print(f"\nThe demonstration stopped: {problem}\n\n{stage.log_tail()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    finally:
        stage.clear()
    print(f"\n== Done in {stage.elapsed_s():.0f} s. The daemon has ended and the temporary folder is gone.")
    return 0


def perform(stage: Stage, *, with_pocket: bool) -> None:
    stage.make_repository()
    say(
        "The scene",
        f"A small repository in {stage.repository}, a data directory beside it, no key, no model server.\n"
        "Everything below marked $ is an ordinary command. The first one starts the daemon.",
    )
    if with_pocket:
        ask_the_pocket_model(stage)
    edit_with_approval(stage)
    survive_a_kill(stage)
    leave(stage)


def ask_the_pocket_model(stage: Stage) -> None:
    say(
        "1. A question, answered by a real model (the pocket model)",
        "It has to look into a file: that is a tool call, and reading needs no approval. The answer is streamed.",
    )
    stage.lend_pocket_model(MODELS)
    try:
        stage.basisctl("pocket", "status")
    except Stop:
        print("\n   So this part is left out: the rest does without a model.")
        stage.note("no model: the pocket model can't run here, for the reason above")
        return
    stage.basisctl("connect", "pocket")
    with Terminal(stage, "run", QUESTION) as terminal:
        terminal.finish()
    session = stage.newest_session()
    model, looked = str(session["model"]), has_tool_call(stage, str(session["sessionId"]))
    print("\n" + indented(POCKET_SAID.format(model=model), mark="   "))
    how = "answered after reading it" if looked else "answered without looking, as it sometimes does,"
    stage.note(f"a question about a file, {how} by the pocket model ({model})")


def has_tool_call(stage: Stage, session: str) -> bool:
    items = map(json.loads, stage.basisctl("show", session, "--json", show=False).splitlines())
    return any(item["kind"] == "tool" for item in items)


def edit_with_approval(stage: Stage) -> None:
    say(
        "2. An edit, asked for here and approved from a second terminal (the rehearsal)",
        "The rehearsal is no model. It carries out `edit PATH: old -> new` and three other phrases, on the road a\n"
        "model's tool calls take: the same loop, tools, questions and events. Nothing is written before the answer.",
    )
    stage.basisctl("connect", "rehearsal")
    with Terminal(stage, "run", EDIT) as one:
        one.wait_for("[y] yes")
        if "9000" in stage.read("server.py"):
            raise Stop("the file was changed before anybody allowed it")
        one.aside("Terminal two:")
        stage.basisctl("asks")
        ask = json.loads(stage.basisctl("asks", "--json", show=False).splitlines()[0])
        stage.basisctl("approve", ask["askId"])
        one.aside("Terminal one goes on:")
        one.finish()
    if "PORT = 9000" not in stage.read("server.py"):
        raise Stop("the edit was approved and did not happen")
    stage.note("an edit, shown as a diff, approved from a second terminal, made in the file")
    say("3. What is there now")
    stage.basisctl("sessions")


def survive_a_kill(stage: Stage) -> None:
    say(
        "4. kill -9, in the middle of a turn",
        "A command is asked for in the same conversation; while its question waits, the daemon is killed. The\n"
        "terminal finds out, starts a new one, and the question still stands.",
    )
    session = str(stage.newest_session()["sessionId"])
    with Terminal(stage, "run", "--session", session, CHECK) as one:
        one.wait_for("[y] yes")
        pid = stage.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        until_dead(pid)
        one.aside(f"kill -9 {pid}   (the daemon)")
        one.wait_for("run interrupted")
        one.wait_for("[y] yes")
        one.aside("Answered here this time, with the key y:")
        one.type("y")
        one.finish()
    if "check passed" not in stage.basisctl("show", session, show=False):
        raise Stop("the command was allowed after the restart and did not run")
    stage.note(f"SIGKILL in mid-turn (pid {pid}); the question outlived it and its answer carried the turn on")
    say("5. The conversation goes on", "The new daemon has read it from its files.")
    with Terminal(stage, "run", "--session", session, "read server.py") as one:
        one.finish()
    stage.basisctl("show", session)
    stage.note("the conversation continued after the restart, with everything in it")


def leave(stage: Stage) -> None:
    say("6. The end")
    pid = stage.daemon_pid()
    stage.basisctl("daemon", "stop")
    until_dead(pid)
    print("\nShown:")
    for number, line in enumerate(stage.done, 1):
        print(f"  {number}. {line}")


if __name__ == "__main__":
    if shutil.which("git") is None:
        sys.exit("git is needed")
    sys.exit(main())
