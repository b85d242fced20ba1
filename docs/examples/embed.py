"""An agent in your own program: one prompt in one directory, every change asked about on the terminal.

    python embed.py DIRECTORY "Add a docstring to calculator.py"
    python embed.py DIRECTORY --resume AGENT_ID "And now a test for it"

Needs no daemon. With no model configured, the rehearsal provider carries out prompts like `read README.md`.
"""

import argparse
import asyncio

from basis_daemon import ApprovalAnswer, ApprovalRequest, BasisError, RunReport, Workspace
from basis_protocol.events import AnyEvent, AssistantDelta, RunStarted, ToolCompleted


class OnTerminal:
    """Asks whoever sits at the terminal. Anything but `y` is a no, and the model is told so."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        print(f"\n? {request.title}")
        answer = await asyncio.to_thread(input, "  allow it? [y/N] ")
        if answer.strip().lower() == "y":
            return ApprovalAnswer(allow=True)
        return ApprovalAnswer(reason="the person at the terminal said no")


def show(event: AnyEvent) -> None:
    """Called with every event, in order, on the loop: keep it short."""
    match event:
        case RunStarted():
            print(f"[{event.provider}, {event.model}, in {event.workspace}]")
        case AssistantDelta():
            print(event.text, end="", flush=True)
        case ToolCompleted():
            print(f"\n· {event.summary}")
        case _:
            pass


async def ask(directory: str, prompt: str, resume: str | None) -> RunReport:
    async with await Workspace.open(directory) as workspace:
        for notice in workspace.notices:
            print(f"note: {notice}")
        # Minting and resuming touch files, so a program with a loop of its own does them in a thread.
        if resume:
            run = await asyncio.to_thread(workspace.resume, resume)
        else:
            run = await asyncio.to_thread(workspace.prepare)
        try:
            report = await run.send(prompt, emit=show, approver=OnTerminal())
        finally:
            run.close()
        print(f"\n[{report.status}; carry on with --resume {run.agent_id}]")
        return report


def main() -> int:
    parser = argparse.ArgumentParser(description="Send one prompt to an agent in a directory.")
    parser.add_argument("directory")
    parser.add_argument("prompt")
    parser.add_argument("--resume", metavar="AGENT_ID")
    arguments = parser.parse_args()
    try:
        report = asyncio.run(ask(arguments.directory, arguments.prompt, arguments.resume))
    except BasisError as error:
        print(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
        return 1
    if report.error:
        print(f"error: {report.error}")
    return 0 if report.succeeded else 1


if __name__ == "__main__":
    raise SystemExit(main())
