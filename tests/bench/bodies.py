"""What it costs to write down a request as its conversation grows: all of it, and one more round of it.

Beside each figure: one copy of a body of that size, which no way of handing it to a socket can do without.
"""

import time
from collections.abc import Callable

from basis_daemon.runtime.messages import Message, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import Request, ToolDefinition
from basis_daemon.runtime.providers.encoded import EncodedMessages
from basis_daemon.runtime.providers.registry import openai_definition
from basis_daemon.runtime.providers.remote import WIRES
from bench.table import Row

DEFINITION = openai_definition()
PROPERTIES = {f"p{number}": {"type": "string", "description": "What it is for. " * 4} for number in range(5)}
TOOLS = [
    ToolDefinition(f"tool{number}", "Does a thing. " * 20, {"type": "object", "properties": PROPERTIES})
    for number in range(15)
]


def measure(quick: bool) -> list[Row]:
    sizes = (10, 1000) if quick else (10, 1000, 10_000)
    return [
        row
        for name in ("responses", "chat_completions")
        for size in sizes
        for row in _rows(name, size, 3 if quick else 9)
    ]


def _rows(name: str, size: int, times: int) -> list[Row]:
    wire = WIRES[name]  # type: ignore[index]
    messages = _conversation(size)

    def build(history: EncodedMessages) -> bytes:
        request = Request("m", messages, system="Be brief. " * 400, tools=TOOLS)
        return wire.build_body(request, DEFINITION, history)

    anew = _times(lambda: build(EncodedMessages()), times)
    history = EncodedMessages()
    body = build(history)
    copy = bytearray(body)
    floor = min(_times(lambda: bytes(copy), times))

    def one_more_round() -> bytes:
        messages.extend(_round(len(messages)))
        return build(history)

    floor_is = f"a copy of {len(body) / 1e6:.2f} MB"
    return [
        Row(f"{name}: {size} items, all of them new", "ms", anew, floor, floor_is),
        Row(f"{name}: {size} items, one more round", "ms", _times(one_more_round, times), floor, floor_is),
    ]


def _times(run: Callable[[], bytes], times: int) -> list[float]:
    """Milliseconds of each run, behind one that counts for nothing."""
    values: list[float] = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        run()
        values.append((time.perf_counter() - begin) * 1000)
    return values[1:]


def _conversation(size: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < size:
        messages += [user("Please look at this one too. " * 8), *_round(len(messages))]
    return messages[:size]


def _round(number: int) -> list[Message]:
    id = f"call_{number}"
    return [
        assistant("Looking. " * 10, ToolUse(id, "tool1", {"path": f"src/part{number}.py"})),
        Message("user", [ToolResult(id, "a line of text\n" * 80)]),
    ]
