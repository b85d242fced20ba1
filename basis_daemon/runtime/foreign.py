"""Running code of a host, so that it can fail without taking the turn, or the process, with it.

Owns telling three things apart that Python tells in one way: work that failed, work that gave itself up, and work that
is being cancelled because the turn is. Only the last is anybody else's business.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from basis_daemon.errors import BasisError

T = TypeVar("T")


class Crashed(BasisError):
    """Host code ended in a way that is no answer."""

    kind = "crashed"


async def contained(work: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
    """What `work` returns. Raises what it raises, and `Crashed` if it took longer than `timeout_s`, cancelled itself or
    tried to end the process. The cancellation of the calling task is passed on, whatever is left of the time."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await work()
    except TimeoutError as error:
        if limit.expired():
            raise Crashed(f"took longer than its limit of {timeout_s:g} s") from error
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Crashed("cancelled itself") from error
    except SystemExit as error:
        raise Crashed("tried to end the process") from error


async def in_own_task(work: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
    """`contained`, in a task of its own: what `work` does to its task or its context variables stays there."""
    outcome: list[T | BaseException] = []

    async def run() -> None:
        try:
            outcome.append(await contained(work, timeout_s=timeout_s))
        except Exception as error:
            outcome.append(error)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
    if not outcome:
        raise Crashed("cancelled itself")
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


def told(error: BaseException) -> str:
    """What an exception of unknown origin says, in words; its type's name if it says nothing."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # its own `__str__` fails
        return type(error).__name__
