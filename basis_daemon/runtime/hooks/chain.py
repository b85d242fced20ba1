"""How the answers of several hooks fold into one (workspace.md 6.2).

Owns the order within one call and its fail-closed rule: a hook that fails, takes too long or says something unknown is
a refusal, never a yes. When a chain is asked is the pipeline's matter: see `call_pipeline.py`.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import msgspec

from basis_daemon.errors import BasisError
from basis_daemon.runtime.foreign import contained, told
from basis_daemon.runtime.hooks.contract import (
    Allow,
    Deny,
    ExecutionHook,
    HookOutcome,
    HookRequest,
    Modify,
    PostHook,
    PreHook,
    Replace,
)
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.providers.streamed import parse_tool_input

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hand:
    """Somebody who changed a call or a result, and why (HO-11)."""

    who: str
    why: str | None = None

    def __str__(self) -> str:
        return f"{self.who}: {self.why}" if self.why else self.who


class CallBlocked(BasisError):
    """A hook refused a call, or failed at judging it. The text is what the model reads."""

    kind = "blocked"

    def __init__(self, text: str, hands: Sequence[Hand] = ()) -> None:
        super().__init__(text)
        self.hands = tuple(hands)
        """Who had rewritten it until then."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A call that may go on: with which input, and whose hands made it that."""

    input: dict[str, Json]
    hands: tuple[Hand, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """A result as the model is to see it."""

    content: Json
    is_error: bool
    hands: tuple[Hand, ...] = ()
    is_withheld: bool = False
    """Whether somebody refused it; then nobody else was asked."""


@dataclass(frozen=True, slots=True)
class Participant:
    """One hook on one side of a call, with what it is called in refusals and in the audit trail."""

    label: str
    refusal: str
    """What a refusal begins with."""
    ask: Callable[[HookRequest], Awaitable[HookOutcome]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class HookChain:
    """Who is asked about one call, as it was when the call was admitted (TL-17)."""

    pre: tuple[PreHook, ...] = ()
    execution: tuple[ExecutionHook, ...] = ()
    post: tuple[PostHook, ...] = ()

    async def before(self, request: HookRequest) -> Judged:
        """Ask everybody ahead of the call, in order. Each sees the input as the ones before left it; the first refusal
        ends the chain (HO-6, HO-7). Raises `CallBlocked`."""
        judged = Judged(request.input)
        for participant in self._ahead():
            judged = await _judge(participant, replace(request, input=copied(judged.input)), judged)
        return judged

    async def after(self, request: HookRequest) -> Shown:
        """Ask the execution hooks about what came of it, in order (TL-17)."""
        return await _show([_execution(hook, "after") for hook in self.execution], request)

    async def behind(self, request: HookRequest) -> Shown:
        """Ask the post hooks, in the reverse order of their registration (TL-19)."""
        return await _show([_named("post-execution hook", hook) for hook in reversed(self.post)], request)

    def _ahead(self) -> list[Participant]:
        pre = [_named("pre-execution hook", hook) for hook in self.pre]
        return [*pre, *(_execution(hook, "before") for hook in self.execution)]


async def _judge(participant: Participant, request: HookRequest, judged: Judged) -> Judged:
    try:
        outcome = await _asked(participant, request)
        match outcome:
            case Allow():
                return judged
            case Deny(reason=reason):
                raise CallBlocked(_with_reason(participant.refusal, reason), judged.hands)
            case Modify(input=given, reason=reason, attribution=attribution):
                hand = Hand(_words(attribution) or participant.label, _words(reason))
                return Judged(_object(given), (*judged.hands, hand))
            case _:
                raise _Nonsense("it gave no answer there is ahead of a call")
    except CallBlocked:
        raise
    except Exception as error:
        logger.warning("%s failed at judging a call: %s", participant.label, type(error).__name__)
        text = f"{participant.refusal}: it could not judge the call ({_failure(error)})"
        raise CallBlocked(text, judged.hands) from error


async def _show(participants: Sequence[Participant], request: HookRequest) -> Shown:
    shown = Shown(request.output, request.is_error)
    for participant in participants:
        asked = replace(request, input=copied(request.input), output=copied(shown.content), is_error=shown.is_error)
        shown = await _shown(participant, asked, shown)
        if shown.is_withheld:
            break
    return shown


async def _shown(participant: Participant, request: HookRequest, shown: Shown) -> Shown:
    try:
        outcome = await _asked(participant, request)
        match outcome:
            case Allow():
                return shown
            case Deny(reason=reason):
                return _withheld(_with_reason(participant.refusal, reason), shown)
            case Replace(output=output, is_error=is_error, reason=reason, attribution=attribution):
                hand = Hand(_words(attribution) or participant.label, _words(reason))
                is_error = shown.is_error if is_error is None else bool(is_error)
                return Shown(_json(output), is_error, (*shown.hands, hand))
            case _:
                raise _Nonsense("it gave no answer there is behind a call")
    except Exception as error:
        logger.warning("%s failed at judging a result: %s", participant.label, type(error).__name__)
        return _withheld(f"{participant.refusal}: it could not judge the result ({_failure(error)})", shown)


def _withheld(text: str, shown: Shown) -> Shown:
    return Shown(text, True, shown.hands, is_withheld=True)


async def _asked(participant: Participant, request: HookRequest) -> object:
    async def ask() -> object:
        answer: object = participant.ask(request)
        if not inspect.isawaitable(answer):
            raise _Nonsense("it is not an async function")
        awaited: Awaitable[object] = answer
        return await awaited

    return await contained(ask)


class _Nonsense(BasisError):
    """An answer that is none."""


def _failure(error: Exception) -> str:
    said = told(error)
    return said if isinstance(error, BasisError) else f"{type(error).__name__}: {said}"


def _named(kind: str, hook: Callable[..., Any]) -> Participant:
    label = f"{kind} '{_name(hook)}'"
    return Participant(label, f"blocked by {label}", hook)


def _execution(hook: ExecutionHook, side: Literal["before", "after"]) -> Participant:
    label = getattr(hook, "label", None) or f"hook '{_name(hook)}'"
    # A side that a hook lacks is missed when it is asked: that is a failure of the hook, not of the turn.
    return Participant(label, f"denied by {label}", lambda request: getattr(hook, side)(request))


def _name(hook: object) -> str:
    """What a hook is called: by itself, else by its definition."""
    for attribute in ("name", "__name__"):
        found: object = getattr(hook, attribute, None)
        if isinstance(found, str) and found:
            return found
    return type(hook).__name__


def _words(text: object) -> str | None:
    """A reason or an attribution. Raises for one that is no text."""
    if text is None or isinstance(text, str):
        return text or None
    raise _Nonsense("the reason it gave is not a text")


def _with_reason(text: str, reason: object) -> str:
    said = _words(reason)
    return f"{text}: {said}" if said else text


def _object(given: Json) -> dict[str, Json]:
    """The input a rewrite asks for, read by the same reader as a model's. Raises for what is no JSON object (HO-8)."""
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    value, malformed = parse_tool_input(text)
    if malformed is not None or not text.strip():
        raise _Nonsense("the input it gave is not a JSON object")
    return value


def _json(value: Json) -> Json:
    """`value` as plain JSON of its own, read by the same reader as a model's. Raises for what is none."""
    if isinstance(value, str):
        return value
    parsed, malformed = parse_tool_input(msgspec.json.encode({"value": value}).decode())
    if malformed is not None:
        raise _Nonsense("the result it gave is nested too deeply")
    return parsed["value"]


def copied(value: Json) -> Json:
    """A JSON value that shares no list or object with `value`."""
    if isinstance(value, dict):
        return {name: copied(each) for name, each in cast(dict[str, Json], value).items()}
    return [copied(each) for each in cast(list[Json], value)] if isinstance(value, list) else value
