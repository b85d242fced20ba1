"""What a call gave back, on its way to the model: plain JSON, within the limits, in pages (runtime.md 4.8, 4.9).

Owns that whatever a tool or a hook gives can be written, sent and read back, and what is kept of a result that is shown
in part: what hooks left of it, so that what one of them took out is nowhere.
"""

import asyncio
from dataclasses import replace

import msgspec

from basis_daemon.errors import BasisError
from basis_daemon.runtime.foreign import sound, told
from basis_daemon.runtime.messages import Json, ToolResult
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.streamed import parse_tool_input
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tools.base import ToolOutput
from basis_daemon.runtime.tools.output import fits, shorten
from basis_daemon.runtime.tools.paging import RAISED_BYTES

LARGE_CHARS = 256 * 1024
"""A longer text is measured and cut in a thread."""

UNLIMITED_LINES = 1 << 40


def settled(output: object) -> ToolOutput:
    """`output` as plain JSON that shares nothing with the tool. What is none becomes an error result."""
    if not isinstance(output, ToolOutput):
        return ToolOutput("It ran, but what it gave back is no result a tool can give.", is_error=True)
    try:
        msgspec.json.encode(output.diff)
        summary = None if output.summary is None else sound(output.summary)
        return replace(output, content=_plain(output.content), details=_plain(output.details), summary=summary)
    except Exception as error:  # a host's objects may fail in any way
        return ToolOutput(f"It ran, but what it gave back is no JSON: {sound(told(error))}", is_error=True)


def _plain(value: Json) -> Json:
    if value is None or isinstance(value, str):
        return value if value is None else sound(value)
    parsed, malformed = parse_tool_input(msgspec.json.encode({"value": value}).decode())
    if malformed is not None:
        raise ValueError("it is nested too deeply")
    return parsed["value"]


async def presented(host: ToolHost, agent_id: str, call_id: str, output: ToolOutput) -> tuple[ToolResult, str | None]:
    """The block the model gets, and the id all of it is kept under where that is only a part of it."""
    whole = ToolResult(call_id, output.content, is_error=output.is_error)
    if output.keep_whole:
        return whole, None
    if isinstance(output.content, str) and len(output.content) > LARGE_CHARS:
        return await asyncio.to_thread(_limited, host, agent_id, whole)
    if fits(whole.as_text(), _limits(host)):
        return _paged(host, whole), None
    return await asyncio.to_thread(_limited, host, agent_id, whole)


def _limited(host: ToolHost, agent_id: str, whole: ToolResult) -> tuple[ToolResult, str | None]:
    """Steps 12 and 13, with what does not fit kept. Blocking: use a thread."""
    limits = _limits(host)
    if fits(whole.as_text(), limits):
        return _paged(host, whole), None
    result_id, note = _spilled(host, agent_id, whole)
    text = shorten(whole.content, limits, note=note).text
    return _paged(host, ToolResult(whole.tool_use_id, text, is_error=whole.is_error)), result_id


def _spilled(host: ToolHost, agent_id: str, whole: ToolResult) -> tuple[str | None, str]:
    """Keep all of a result. Returns its id and what is said of it; a disk that fails is said, not raised (TL-36)."""
    if not host.policy.spill_full_tool_output:
        return None, "the rest was not kept"
    try:
        result_id = f"{agent_id}/{host.results.write(whole.as_text())}"
    except BasisError as error:
        return None, f"the rest could not be kept: {sound(str(error))[:200]}"
    return result_id, f"all of it is kept as {result_id}"


def _paged(host: ToolHost, result: ToolResult) -> ToolResult:
    if host.pager is None or not isinstance(result.content, str):
        return result
    text = host.pager.first_page(result.tool_use_id, result.content)
    return ToolResult(result.tool_use_id, text, is_error=result.is_error)


def _limits(host: ToolHost) -> RuntimePolicy:
    """What a result may be. A limiter that nobody set is raised where there are pages: else none would be (TL-39)."""
    policy, default = host.policy, RuntimePolicy()
    limits = (policy.max_tool_result_bytes, policy.max_tool_result_lines)
    if host.pager is None or limits != (default.max_tool_result_bytes, default.max_tool_result_lines):
        return policy
    return replace(policy, max_tool_result_bytes=RAISED_BYTES, max_tool_result_lines=UNLIMITED_LINES)
