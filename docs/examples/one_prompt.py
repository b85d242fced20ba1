"""One prompt to an agent with one tool of your own, with no repository and no daemon.

OPENAI_API_KEY=… python one_prompt.py "What time is it in Lisbon?"
MODEL_URL=http://127.0.0.1:8080/v1 MODEL=qwen3 python one_prompt.py "What time is it?"
"""

import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any

from basis_daemon import BasisError, FunctionTool, Runtime, RuntimeBuilder, ToolContext, ToolSpec
from basis_protocol.events import AnyEvent, AssistantDelta


async def clock(context: ToolContext, input: dict[str, Any]) -> str:
    return datetime.now(UTC).isoformat(timespec="minutes")


def show(event: AnyEvent) -> None:
    if isinstance(event, AssistantDelta):
        print(event.text, end="", flush=True)


def with_model() -> RuntimeBuilder:
    """OpenAI with a key, or any endpoint that speaks chat/completions."""
    builder = Runtime.empty_builder().with_ephemeral_history()
    if url := os.environ.get("MODEL_URL"):
        return builder.with_openai_compatible("mine", url, os.environ.get("MODEL_KEY"))
    return builder.with_optional_provider("openai", os.environ.get("OPENAI_API_KEY"))


async def main(prompt: str) -> int:
    tool = FunctionTool(ToolSpec("clock", "Tells the time in UTC."), clock)
    async with with_model().with_tool(tool).build() as runtime:
        name = os.environ.get("MODEL")
        model = await (runtime.resolve_model(selector=name) if name else runtime.resolve_model())
        agent = runtime.spawn("assistant", model)
        with agent.events.tap(show):
            report = await agent.send(prompt)
    print(f"\n[{report.status}, {report.usage.total_tokens} tokens]")
    return 0 if report.succeeded else 1


if __name__ == "__main__":
    try:
        raise SystemExit(asyncio.run(main(sys.argv[1])))
    except BasisError as error:
        raise SystemExit(f"error: {error}" + (f" ({error.hint})" if error.hint else "")) from error
