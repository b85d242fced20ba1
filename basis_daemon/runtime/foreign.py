"""Running code of a host, so that it can fail without taking the turn, or the process, with it.

Owns telling three things apart that Python tells in one way: work that failed, work that gave itself up, and work that
is being cancelled because the turn is. Only the last is anybody else's business.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio.lowlevel

from basis_daemon.errors import BasisError

T = TypeVar("T")


class Crashed(BasisError):
    """Host code ended in a way that is no answer."""

    kind = "crashed"


async def contained(work: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
    """What `work` returns. Raises what it raises, and `Crashed` if it took longer than `timeout_s`, cancelled itself,
    tried to end the process or broke down in another way that is no `Exception`.

    The cancellation of the calling task is passed on, whatever is left of the time and whatever `work` makes of it:
    what is cancelled begins no work, and work that kept its cancellation to itself has not ended well.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    task = asyncio.current_task()
    cancelled_before = 0 if task is None else task.cancelling()

    async def pass_cancellation_on() -> None:
        if task is not None and task.cancelling() > cancelled_before:
            await anyio.lowlevel.checkpoint_if_cancelled()  # a scope knows its own cancellation only
            raise asyncio.CancelledError

    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            result = await work()
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if not isinstance(error, asyncio.CancelledError):
            await pass_cancellation_on()
        elif task is not None and task.cancelling() > cancelled_before:
            raise
        if isinstance(error, TimeoutError) and limit.expired():
            raise Crashed(f"took longer than its limit of {timeout_s:g} s") from error
        if isinstance(error, Exception):
            raise
        raise Crashed(_crash(error)) from error
    await pass_cancellation_on()
    return result


def called(work: Callable[[], T]) -> T:
    """`contained`, for host code that is not async."""
    try:
        return work()
    except (KeyboardInterrupt, GeneratorExit, Exception):
        raise
    except BaseException as error:
        raise Crashed(_crash(error)) from error


def _crash(error: BaseException) -> str:
    match error:
        case asyncio.CancelledError():
            return "cancelled itself"
        case SystemExit():
            return "tried to end the process"
        case _:  # a panic of a library that is not Python's, or a group around one
            return f"broke down ({type(error).__name__}: {told(error)})"


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


def sound(text: str) -> str:
    """`text` as it can be sent: half a surrogate pair has no UTF-8."""
    return text if text.isascii() else str(text).encode("utf-8", "backslashreplace").decode()
