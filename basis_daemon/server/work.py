"""The daemon's own work: tasks that belong to no client and end with the daemon (architecture.md 4)."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Work:
    """Runs coroutines in the daemon's task group. A failing one never takes the others with it."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Do `coroutine` to its end even if the caller is cancelled meanwhile. Returns or raises what it does."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # A caller that went away leaves nobody to look at a failure; it must not be reported as forgotten.
        outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._group.create_task(_settle(coroutine, outcome))
        return await asyncio.shield(outcome)

    def start(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Do `coroutine` in the background. A failure is logged under `name`."""
        return self._group.create_task(_logged(coroutine, name), name=name)


async def _settle(coroutine: Coroutine[Any, Any, T], outcome: "asyncio.Future[T]") -> None:
    try:
        result = await coroutine
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except Exception as error:
        outcome.set_exception(error)
    else:
        outcome.set_result(result)


async def _logged(coroutine: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await coroutine
    except Exception:
        log.exception("%s failed", name)
