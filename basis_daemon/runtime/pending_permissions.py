"""Questions of one conversation that wait for code to answer them (runtime.md 6.4).

Owns what waits and who is let go on. Whether a call is asked about, and what an answer means for later ones, is
`permissions.py`'s matter.
"""

import asyncio
import threading
from dataclasses import dataclass

from basis_daemon.errors import UsageError
from basis_daemon.runtime.permissions import ApprovalAnswer, ApprovalRequest


class NoSuchPermission(UsageError):
    """SE-16, SE-30: nothing of that id waits: it was answered, withdrawn, or its conversation was closed."""

    kind = "no_such_permission"


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: ApprovalRequest
    answered: "asyncio.Future[ApprovalAnswer]"


class PendingPermissions:
    """An `Approver` whose questions wait for `resolve`, for as long as the turn does or `timeout_s` (SE-17).

    The request is in `pending` by the time a subscription shows its `permission_requested`; a tap, which is called as
    that happens, is too early.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._is_closed = False

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """What waits, oldest first."""
        with self._lock:
            return tuple(waiting.request for waiting in self._waiting.values())

    def resolve(self, request_id: str, answer: ApprovalAnswer) -> None:
        """Answer one, from any task or thread (SE-18). Raises `NoSuchPermission`; then nothing has happened."""
        if not self._answer(request_id, answer):
            raise NoSuchPermission(
                f"no permission request {request_id!r} waits for an answer", hint="answer what `pending` lists"
            )

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Wait for the answer. Cancelling it withdraws the question."""
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        with self._lock:
            if self._is_closed:
                return ApprovalAnswer(reason=_CLOSED)
            self._waiting[request.request_id] = waiting
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await waiting.answered
        except TimeoutError:
            if not limit.expired():
                raise
            return ApprovalAnswer(reason=f"nobody answered within {self._timeout_s:g} s, so it was refused")
        finally:
            with self._lock:
                if self._waiting.get(request.request_id) is waiting:
                    del self._waiting[request.request_id]

    def close(self) -> None:
        """Refuse everything that waits, and whatever is asked later (SE-17)."""
        with self._lock:
            self._is_closed = True
            waiting = tuple(self._waiting)
        for request_id in waiting:
            self._answer(request_id, ApprovalAnswer(reason=_CLOSED))

    def _answer(self, request_id: str, answer: ApprovalAnswer) -> bool:
        with self._lock:
            waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            waiting.answered.get_loop().call_soon_threadsafe(_settle, waiting.answered, answer)
        return waiting is not None


_CLOSED = "the conversation was closed before anybody answered, so it was refused"


def _settle(answered: "asyncio.Future[ApprovalAnswer]", answer: ApprovalAnswer) -> None:
    if not answered.done():
        answered.set_result(answer)
