"""Which conversation the last response's id stands for, and which requests may therefore send only what is new.

Owns one agent's link to its last response (PV-31…PV-35). A link holds as long as a request's messages begin with the
very ones the response was made from, followed by the answer it gave: branching, rollback, compaction and another model
break it by themselves, and nobody has to remember to.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_

from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.providers.base import ProviderEvent, Request, ResponsesOptions
from basis_daemon.runtime.providers.errors import HttpError, InvalidRequest, ProviderError
from basis_daemon.runtime.providers.streamed import StreamedMessage

CONTINUABLE = ("end_turn", "tool_use")
"""Stop reasons of answers that are whole."""

_ABOUT_THE_ID = re.compile(r"previous[ _]response", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"unsupported|not (supported|permitted|allowed|available)|zero data retention"
    r"|(unknown|unrecognized|unexpected|extra|invalid)[ _](request[ _])?(parameter|field|argument|input|key|propert)",
    re.IGNORECASE,
)


def is_stored(options: ResponsesOptions) -> bool:
    """Whether the vendor is asked to keep the response: only if somebody wants that, or nothing else would do."""
    return options.store if options.store is not None else options.state_mode == "stateful"


def refuses_id(error: ProviderError) -> bool:
    """Whether the endpoint says that it can't go on from the id it was given (PV-32)."""
    return isinstance(error, HttpError) and error.status in (400, 404) and bool(_ABOUT_THE_ID.search(_words(error)))


def refuses_parameter(error: ProviderError) -> bool:
    """Whether it says that it can't go on from any id."""
    return refuses_id(error) and bool(_UNSUPPORTED.search(_words(error)))


def _words(error: ProviderError) -> str:
    return f"{error} {error.body or ''}"


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    id: str
    covered: Sequence[Message]
    """The conversation the response was made from, whether or not all of it was sent."""
    events: Sequence[ProviderEvent]
    """The response, as it was streamed: put together only when there is a request that might continue it."""
    setting: object
    place: object | None
    """The connection that remembers the response; `None` when the vendor stores it."""

    def covers(self, messages: Sequence[Message]) -> bool:
        """Whether `messages` go on from exactly this response, and say something new."""
        size = len(self.covered)
        if len(messages) < size + 2 or not all(map(is_, self.covered, messages)):
            return False
        answer = StreamedMessage()
        for event in self.events:
            answer.apply(event)
        return answer.message() == messages[size]


class ResponseChain:
    """The link of one agent. At most one: the last response."""

    def __init__(self) -> None:
        self._link: _Link | None = None
        self._has_begun = False

    def continuation(self, request: Request, place: object | None, *, has_stored: bool) -> Request | None:
        """`request` as what is new in it, behind the id of the response it continues; `None` if it continues none.

        `place` is the connection it is going to be sent on, if one that remembers; `has_stored` says whether stored
        responses may be continued as well.
        """
        link = self._link
        if link is None:
            return None if self._has_begun or not has_stored else _host_continuation(request)
        is_there = (link.place is None and has_stored) or (link.place is not None and link.place is place)
        if not is_there or link.setting != _setting(request) or not link.covers(request.messages):
            return None
        return _behind(request, link.id, len(link.covered) + 1)

    def answered(
        self, request: Request, events: Sequence[ProviderEvent], response_id: str | None, place: object | None
    ) -> None:
        """Remember that the response to all of `request` has this id, or forget the last one where there is none."""
        self._has_begun = True
        self._link = None
        if response_id:
            self._link = _Link(response_id, list(request.messages), events, _setting(request), place)

    def forget(self) -> None:
        """The id was refused."""
        self._has_begun = True
        self._link = None


def require_link(request: Request) -> None:
    """Raise `InvalidRequest` if a stateful `request`, for which there is no id, has got past its first turn (PV-33)."""
    if any(message.role == "assistant" for message in request.messages):
        raise InvalidRequest(
            "the provider holds no response this conversation could go on from, and a stateful one is not sent again",
            hint="choose the hybrid state mode, or start a new conversation",
        )


def _setting(request: Request) -> object:
    """What a response was made with that has to be the same in whatever continues it."""
    return (request.model, request.tools, request.options.tool_search)


def _host_continuation(request: Request) -> Request | None:
    """`request` behind an id its host brought along: that response stands for everything up to the last answer."""
    id = request.options.responses.previous_response_id
    if id is None:
        return None
    answers = [at for at, message in enumerate(request.messages) if message.role == "assistant"]
    return _behind(request, id, answers[-1] + 1 if answers else 0)


def _behind(request: Request, id: str, start: int) -> Request:
    options = replace(request.options, responses=replace(request.options.responses, previous_response_id=id))
    return replace(request, messages=request.messages[start:], options=options)
