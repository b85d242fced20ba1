"""A test of a program that embeds an agent: its tool, its prompt and what becomes of an answer, with no model.

pytest test_shouter.py
"""

import asyncio
from typing import Any

from basis_daemon import AgentConfig, AgentHandle, FunctionTool, Runtime, ToolContext, ToolSpec
from basis_daemon.testing import MockRuntime, ScriptedCall


async def shout(context: ToolContext, input: dict[str, Any]) -> str:
    return input["text"].upper()


SHOUT = FunctionTool(ToolSpec("shout", "Write a text in capitals."), shout)


class Shouter:
    """The program under test: it is given a runtime, so that a test can give it another."""

    def __init__(self, runtime: Runtime, agent: AgentHandle | None = None) -> None:
        self.agent = agent or runtime.spawn("shouter", config=AgentConfig(system="Shout."))

    async def say(self, text: str) -> str:
        report = await self.agent.send(text)
        return report.final_message or f"nothing: {report.error}"


def test_what_the_tool_gives_reaches_the_model() -> None:
    async def scenario() -> None:
        script = MockRuntime.builder().with_tool(SHOUT).tool_calls(ScriptedCall("shout", {"text": "hi"})).text("HI!")
        async with script.build() as mock:
            program = Shouter(mock.runtime, mock.spawn("shouter", AgentConfig(system="Shout.")))
            assert await program.say("hi") == "HI!"

            first, second = mock.recorded_requests()
            assert first.system == "Shout." and "shout" in [tool.name for tool in first.tools]
            assert "HI" in str(second.messages[-1])
            mock.assert_exhausted()

    asyncio.run(scenario())
