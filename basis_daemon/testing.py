"""A runtime for tests of programs that embed one: everything real but the model, nothing on disk (runtime.md 12).

    async with MockRuntime.builder().tool_calls(ScriptedCall("read", {"path": "a"})).text("Done.").build() as mock:
        report = await mock.spawn("under test").send("go")

Owns the script and what tests look at afterwards. Runs on asyncio, as the runtime does: under `asyncio.run`, or under
pytest with anyio's plugin and its asyncio backend.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import TracebackType
from typing import Any, Self

from basis_daemon.errors import UsageError
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.agent_handle import AgentHandle
from basis_daemon.runtime.limits import ProviderRetry
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import ModelInfo, Request, TokenUsage
from basis_daemon.runtime.providers.errors import ProviderError
from basis_daemon.runtime.providers.scripted import ScriptedCall as ScriptedCall
from basis_daemon.runtime.providers.scripted import ScriptedProvider, ScriptedTurn
from basis_daemon.runtime.providers.scripted import ScriptExhausted as ScriptExhausted
from basis_daemon.runtime.runtime import Runtime, RuntimeBuilder
from basis_daemon.runtime.runtime_parts import RuntimeParts

AT_ONCE = ProviderRetry(base_delay_s=0.0, max_delay_s=0.0, retry_after_cap_s=0.0)
"""Failed requests are made again without waiting: a test needs no clock of its own (TE-5)."""

_counter = count(1)


class MockRuntime:
    """A real runtime whose model says what a test wrote down. Two of them share nothing (TE-1)."""

    def __init__(self, runtime: Runtime, provider: ScriptedProvider) -> None:
        self.runtime = runtime
        self.provider = provider

    @staticmethod
    def builder() -> "MockRuntimeBuilder":
        return MockRuntimeBuilder()

    @property
    def model(self) -> ModelInfo:
        """The one there is."""
        return self.provider.model

    def spawn(self, name: str = "mock agent", config: AgentConfig | None = None) -> AgentHandle:
        """An agent with the scripted model. What fails in passing is asked again at once, unless `config` says how to
        wait."""
        config = config or AgentConfig()
        if config.retry == ProviderRetry():
            config = replace(config, retry=AT_ONCE)
        return self.runtime.spawn(name, self.model, config)

    def push_turn(self, turn: ScriptedTurn) -> None:
        """One more answer, behind those there are."""
        self.provider.push(turn)

    def recorded_requests(self) -> list[Request]:
        """Every request so far, in order, as it was when it came: model, system, messages, tools, options (TE-3)."""
        return self.provider.recorded_requests()

    def assert_exhausted(self) -> None:
        """Raises `AssertionError` for answers nobody asked for, `ScriptExhausted` where one was missing (TE-4)."""
        self.provider.assert_exhausted()

    async def aclose(self) -> None:
        await self.runtime.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True)
class MockRuntimeBuilder(RuntimeParts):
    """A runtime's builder that has a script too (TE-2). Whatever `RuntimeBuilder` takes can be said here; unless it is,
    conversations are kept in memory and the policy permits commands.

    `text`, `tool_calls` and the like add an answer; `thinking`, `usage` and `delay` say more of the last one.
    """

    turns: tuple[ScriptedTurn, ...] = ()
    model_info: ModelInfo = field(default_factory=lambda: ModelInfo("mock-model", "openai"))

    # --- the model ---------------------------------------------------------------------------------------------------

    def model(self, id: str = "mock-model", provider: str = "openai") -> Self:
        """What the model and its provider call themselves."""
        return replace(self, model_info=replace(self.model_info, id=id, provider=provider))

    def model_context_window(self, tokens: int) -> Self:
        return replace(self, model_info=replace(self.model_info, context_window=tokens))

    # --- the script --------------------------------------------------------------------------------------------------

    def push_turn(self, turn: ScriptedTurn) -> Self:
        """One more answer."""
        return replace(self, turns=(*self.turns, turn))

    def text(self, text: str) -> Self:
        return self.push_turn(ScriptedTurn(chunks=(text,)))

    def stream_text(self, chunks: Sequence[str]) -> Self:
        """An answer in words, one delta for each chunk."""
        return self.push_turn(ScriptedTurn(chunks=tuple(chunks)))

    def tool_calls(self, *calls: ScriptedCall) -> Self:
        """An answer that asks for tools. Calls without an id get `tool-1`, `tool-2`, …"""
        return self.push_turn(ScriptedTurn(calls=calls))

    def malformed_tool_input(self, name: str, raw: str) -> Self:
        """A call whose input is no JSON object."""
        return self.tool_calls(ScriptedCall(name, raw=raw))

    def failure(self, error: ProviderError) -> Self:
        """A request that fails."""
        return self.push_turn(ScriptedTurn(failure=error))

    def pending(self) -> Self:
        """An answer that never comes: it waits to be cancelled."""
        return self.push_turn(ScriptedTurn(pending=True))

    def thinking(self, text: str) -> Self:
        """Reasoning ahead of the last answer."""
        return self._last(thinking=text)

    def usage(self, usage: TokenUsage) -> Self:
        """What the last answer reports to have taken."""
        return self._last(usage=usage)

    def delay(self, seconds: float) -> Self:
        """Time that passes ahead of the last answer."""
        return self._last(delay_s=seconds)

    # -----------------------------------------------------------------------------------------------------------------

    def build(self) -> MockRuntime:
        """Make it. Raises as `RuntimeBuilder.build` does."""
        provider = ScriptedProvider(self.turns, id=self.model_info.provider, model=self.model_info)
        said = {name: getattr(self, name) for name in RuntimeParts.__dataclass_fields__}
        builder = replace(
            RuntimeBuilder(**said),
            instances=(provider, *self.instances),
            store=self.store or "memory",
            policy=self.policy or RuntimePolicy.permissive(),
            runtime_identifier=self._identifier(),
        )
        return MockRuntime(builder.build(), provider)

    def _identifier(self) -> str:
        is_said = self.runtime_identifier != RuntimeParts().runtime_identifier
        return self.runtime_identifier if is_said else f"mock-runtime-{time.time_ns()}-{next(_counter)}"

    def _last(self, **more: Any) -> Self:
        if not self.turns:
            raise UsageError("there is no answer yet that more could be said of", hint="write an answer down first")
        return replace(self, turns=(*self.turns[:-1], replace(self.turns[-1], **more)))
