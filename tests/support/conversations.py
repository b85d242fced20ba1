"""A conversation on the runtime alone: a scripted model over real HTTP, a store, and tools of the test's own.

Owns building one and collecting what it emitted. No workspace, no daemon.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from basis_daemon.processes import LocalExecutor
from basis_daemon.redact import Secret
from basis_daemon.runtime.limits import ProviderRetry, TurnOptions
from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.permissions import ApprovalAnswer, ApprovalRequest, Approver
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.prompts import new_prompt
from basis_daemon.runtime.providers.base import ModelInfo, Provider, RequestOptions
from basis_daemon.runtime.providers.governor import Governor
from basis_daemon.runtime.providers.registry import ProviderChoice, ProviderRegistry
from basis_daemon.runtime.runtime import ProviderSettings, Runtime
from basis_daemon.runtime.sessions import Session, SessionOptions
from basis_daemon.runtime.store.base import PromptAccepted, Store, TurnEnded
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.runtime.tools.base import FunctionTool, Tool, ToolContext, ToolSpec
from basis_daemon.runtime.tools.registry import ToolRegistry
from basis_daemon.runtime.typed_output import OutputWanted
from basis_daemon.workspace.approval import ApprovalGate
from basis_protocol.events import AnyEvent
from support.model_server import ModelServer

Kind = TypeVar("Kind")

AT_ONCE = ProviderRetry(base_delay_s=0.0, max_delay_s=0.0, retry_after_cap_s=0.0)
"""Retries without waiting."""


_open: "list[Conversation]" = []


async def close_conversations() -> None:
    """End every conversation made since the last call, with its connections. For a fixture's end."""
    while _open:
        conversation = _open.pop()
        await asyncio.to_thread(conversation.session.close)
        await conversation.runtime.aclose()


class Allow:
    """A person who allows everything and keeps what they were asked."""

    def __init__(self, answer: ApprovalAnswer | None = None) -> None:
        self.answer = answer or ApprovalAnswer(allow=True)
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return self.answer


class Conversation:
    """One session and everything it emitted, in order."""

    def __init__(self, session: Session, runtime: Runtime) -> None:
        self.session = session
        self.runtime = runtime
        self.events: list[AnyEvent] = []

    def accept(self, text: str | Message) -> PromptAccepted:
        prompt = new_prompt(text)
        self.session.agent.accept(prompt)
        return prompt

    async def say(
        self,
        text: str,
        *,
        approver: Approver | None = None,
        options: TurnOptions | None = None,
        output: OutputWanted | None = None,
    ) -> TurnEnded:
        """Accept a prompt and run it to its end."""
        return await self.run(self.accept(text), approver=approver, options=options, output=output)

    async def run(
        self,
        prompt: PromptAccepted,
        *,
        approver: Approver | None = None,
        options: TurnOptions | None = None,
        resumed: bool = False,
        output: OutputWanted | None = None,
    ) -> TurnEnded:
        chosen = options or TurnOptions()
        return await self.session.run(
            prompt,
            emit=self.events.append,
            approver=approver or Allow(),
            options=replace(chosen, retry=AT_ONCE) if chosen.retry == ProviderRetry() else chosen,
            resumed=resumed,
            output=output,
        )

    def seen(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]


def new_conversation(
    server: ModelServer | Provider,
    directory: Path,
    *tools: Tool,
    store: Store | None = None,
    resume: str | None = None,
    policy: RuntimePolicy | None = None,
    roster: Callable[[str], bool] = lambda name: True,
    providers: ProviderRegistry | None = None,
    provider: Provider | None = None,
    max_delegation_depth: int = 8,
    keep_subagents: bool = False,
    request_options: RequestOptions | None = None,
    project_id: str | None = None,
) -> Conversation:
    """A conversation whose model is `server`; with `resume`, the stored one of that id. A provider in place of a server
    is for what the wire has no part in.

    `providers`: the ones it shares with other conversations; `provider`: another one than the usual of `server`.
    """
    providers = providers or ProviderRegistry(Governor(first_pause_s=0))
    if isinstance(server, ModelServer):
        choice = ProviderChoice("openai", Secret("key"), server.base_url, "chat_completions", None)
        provider = provider or providers.get(choice)
    else:
        provider = server
        providers.register(provider)
    options = SessionOptions(
        runtime_identifier=f"basis:{directory}",
        base_dir=directory,
        provider=provider,
        model=ModelInfo("scripted", provider.id),
        policy=policy or RuntimePolicy(),
        authorizer=ApprovalGate(),
        environment={"PATH": "/usr/bin:/bin"},
        roster=roster,
        system="Be brief.",
        max_delegation_depth=max_delegation_depth,
        keep_subagents=keep_subagents,
        request_options=request_options,
        project_id=project_id,
    )
    runtime = Runtime(
        store=store or VolatileStore(),
        registry=_registry(tools),
        providers=providers,
        executor=LocalExecutor(),
        defaults=ProviderSettings(),
    )
    session = runtime.resume_session(resume, options) if resume else runtime.create_session(options)
    _open.append(Conversation(session, runtime))
    return _open[-1]


def _registry(tools: Iterable[Tool]) -> ToolRegistry:
    registry = ToolRegistry()
    for tool in tools:
        registry.register(tool)
    return registry


class Counter:
    """A consequential tool that keeps what it was called with and can be held inside a call."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.leave.set()

    def tool(self, name: str = "bump") -> FunctionTool:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return FunctionTool(ToolSpec(name, "Count.", schema, side_effect="local_state"), self._run)

    async def _run(self, context: ToolContext, input: dict[str, Any]) -> Any:
        self.ran.append(input)
        self.entered.set()
        await self.leave.wait()
        return f"counted {input.get('n')}"


def roles(conversation: Conversation) -> list[str]:
    """The kinds of the entries on the conversation's path."""
    return [entry.kind for entry in conversation.session.agent.transcript]
