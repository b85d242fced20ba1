"""Trying again outside a turn: listing models, embeddings (PV-56). A turn's own attempts are `model_call.py`'s."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from basis_daemon.runtime.providers.definition import RetryPolicy
from basis_daemon.runtime.providers.errors import ProviderError, TransportError

RETRY_AFTER_CAP_S = 60.0
"""Seconds of a provider's own wish that are heeded between two attempts."""

Result = TypeVar("Result")


async def repeated(policy: RetryPolicy, attempt: Callable[[], Awaitable[Result]]) -> Result:
    """What `attempt` returns, tried again as `policy` says, each time after twice the delay or the provider's own.

    Raises the last attempt's `ProviderError`.
    """
    for number in range(1, max(1, policy.max_attempts)):
        try:
            return await attempt()
        except ProviderError as error:
            if not _may_retry(error, policy):
                raise
            scheduled_s = policy.base_delay_s * 2 ** min(number - 1, 10)
            await asyncio.sleep(max(scheduled_s, min(error.retry_after_s or 0.0, RETRY_AFTER_CAP_S), error.held_s))
    return await attempt()


def _may_retry(error: ProviderError, policy: RetryPolicy) -> bool:
    if not error.is_transient:
        return False
    if isinstance(error, TransportError):
        return policy.retry_transport
    return policy.retry_429 if error.status == 429 else policy.retry_5xx
