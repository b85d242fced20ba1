"""What one call is told of its surroundings, and how it reports progress (TL-4, TL-5)."""

import asyncio
import threading
from collections.abc import Callable

from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.call_stages import OngoingCall
from basis_daemon.runtime.delegation import AgentOperations
from basis_daemon.runtime.foreign import sound
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tools.base import ToolContext
from basis_protocol.events import AnyEvent, ToolProgress


def context_of(
    ongoing: OngoingCall,
    agent: Agent,
    host: ToolHost,
    emit: Callable[[AnyEvent], None],
    operations: AgentOperations | None,
) -> ToolContext:
    """The context of a call that is previewed or run now."""
    return ToolContext(
        agent_id=agent.id,
        agent_name=agent.record.name,
        tool_call_id=ongoing.id,
        tool_name=ongoing.name,
        working_directory=host.working_directory,
        policy=host.policy,
        executor=host.executor,
        environment=host.environment,
        progress=_progress(ongoing, emit),
        overlay=host.overlay,
        files=host.files,
        agent=operations,
        app=host.app,
        background=host.background_of(agent.id, emit),
        skills=host.skills,
    )


def _progress(ongoing: OngoingCall, emit: Callable[[AnyEvent], None]) -> Callable[[str], None]:
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()

    def tell(text: str) -> None:
        if not ongoing.is_over:  # nothing comes behind a call's end
            emit(ToolProgress(tool_call_id=ongoing.id, tool_name=ongoing.name, progress=text))

    def progress(text: str) -> None:
        text = sound(str(text))
        if threading.get_ident() == loop_thread:
            tell(text)
        else:
            loop.call_soon_threadsafe(tell, text)

    return progress
