"""Questions of one conversation that wait for code to answer them (runtime.md 6.4).

Owns what waits and who is let go on. Whether a call is asked about, and what an answer means for later ones, is
`permissions.py`'s matter.
"""

import asyncio
from dataclasses import dataclass

from basis_daemon.errors import UsageError
from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest


class NoSuchPermission(UsageError):
    """SE-16, SE-30: nothing of that id waits: it was answered, withdrawn, or its conversation was closed."""

    kind = "no_such_permission"


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: ApprovalRequest
    answered: "asyncio.Future[ApprovalAnswer]"


class PendingPermissions:
    """An `Approver` whose questions wait for `resolve`, for as long as the turn does or `timeout_s` (SE-17).

    A request is in `pending` by the time a subscription shows its `permission_requested`; a tap, which is called as
    that happens, is too early. Belongs to one event loop; another thread goes by `asyncio.run_coroutine_threadsafe`.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        self._timeout_s = timeout_s
        self._waiting: dict[str, _Waiting] = {}
        self._is_closed = False

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """What waits, oldest first."""
        return tuple(waiting.request for waiting in self._waiting.values())

    async def resolve(self, request_id: str, answer: ApprovalAnswer) -> None:
        """Answer one, from any task (SE-18). What the answer says about later calls is kept first: if that fails, which
        is raised, the request still waits (SE-16). Raises `NoSuchPermission`; then nothing was kept."""
        waiting = self._require(request_id)
        await waiting.request.keep(answer)
        if self._require(request_id) is not waiting or waiting.answered.done():
            raise _unknown(request_id)
        waiting.answered.set_result(answer)
        del self._waiting[request_id]

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Wait for the answer. Cancelling it withdraws the question."""
        if self._is_closed:
            return ApprovalAnswer(reason=_CLOSED)
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
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
            if self._waiting.get(request.request_id) is waiting:
                del self._waiting[request.request_id]

    def close(self) -> None:
        """Refuse everything that waits, and whatever is asked later (SE-17)."""
        self._is_closed = True
        for waiting in self._waiting.values():
            if not waiting.answered.done():
                waiting.answered.set_result(ApprovalAnswer(reason=_CLOSED))
        self._waiting.clear()

    def _require(self, request_id: str) -> _Waiting:
        waiting = self._waiting.get(request_id)
        if waiting is None:
            raise _unknown(request_id)
        return waiting


_CLOSED = "the conversation was closed before anybody answered, so it was refused"


def _unknown(request_id: str) -> NoSuchPermission:
    return NoSuchPermission(f"no permission request {request_id!r} waits for an answer", hint="see `pending`")
