"""The models on offer, as providers last told of them: asked all at once, kept for some minutes, never guessed.

Owns how long an answer holds and what is shown when one provider does not answer. Which providers a workspace can reach
is `reachable.py`'s; which model of them is used, `connection.py`'s.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from basis_daemon.errors import BasisError
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.base import ModelInfo, Provider
from basis_daemon.runtime.providers.definition import CredentialSource
from basis_daemon.runtime.providers.errors import TransportError

ANSWER_HOLDS_S = 300.0
"""Seconds a list is used without asking again. New models come by the week."""
FAILURE_HOLDS_S = 15.0
"""Seconds a provider that did not answer is left alone: a picker that is opened again must not wait again."""
TIMEOUT_S = 10.0
"""Seconds one provider has to answer; after that it counts as one that could not be asked."""


@dataclass(frozen=True, slots=True)
class Reachable:
    """A provider that can be asked, and where its key is from. The same provider with another key is another answer."""

    provider: Provider
    credentials: CredentialSource | None = None
    billed_as: str | None = None
    """Whose prices hold; unset is the provider's own. An endpoint under a vendor's id is not the vendor."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One provider's models, newest first. With an `error` they are those it last told of, if any."""

    provider: str
    models: tuple[ModelInfo, ...] = ()
    error: BasisError | None = None
    billed_as: str | None = None
    """Whose prices hold, if not those of the provider's id."""


@dataclass(slots=True)
class _Known:
    listing: Listing
    until: float


class ModelCatalogue:
    """One daemon's or one embedder's. Safe for concurrent use on one loop; equal questions are asked once."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[tuple[Provider, Secret | None], _Known] = {}
        self._latest: dict[Provider, tuple[ModelInfo, ...]] = {}
        self._asking: dict[tuple[Provider, Secret | None], asyncio.Lock] = {}

    def known(self, provider: Provider) -> tuple[ModelInfo, ...]:
        """What `provider` last told of; empty when it was never asked. Asks nobody."""
        return self._latest.get(provider, ())

    async def listings(self, reachable: Sequence[Reachable], *, refresh: bool = False) -> list[Listing]:
        """Every provider's models, in the order given. Never raises for what a provider does."""
        answers = await asyncio.gather(*(self._listing(each, refresh=refresh) for each in reachable))
        return [replace(answer, billed_as=each.billed_as) for answer, each in zip(answers, reachable, strict=True)]

    async def models(self, reachable: Reachable) -> list[ModelInfo]:
        """One provider's models. Raises what asking it raises; a failure that is remembered is tried again."""
        listing = await self._listing(reachable, refresh=False)
        if listing.error is not None:
            listing = await self._listing(reachable, refresh=True)
        if listing.error is not None:
            raise listing.error.with_traceback(None)
        return list(listing.models)

    async def _listing(self, reachable: Reachable, *, refresh: bool) -> Listing:
        provider = reachable.provider
        try:
            key = (await reachable.credentials.credentials()).key if reachable.credentials else None
        except BasisError as error:
            return Listing(provider.id, error=error)
        question = (provider, key)
        before = self._known.get(question)
        async with self._asking.setdefault(question, asyncio.Lock()):
            known = self._known.get(question)
            # Whoever waited for somebody else's question takes its answer.
            if known is None or (known is before and (refresh or known.until <= self._now())):
                known = self._known[question] = await self._ask(provider, known)
                self._forget_others(question)
            return known.listing

    async def _ask(self, provider: Provider, before: _Known | None) -> _Known:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                models = tuple(await provider.list_models())
        except TimeoutError:
            error: BasisError = TransportError(f"{provider.label} did not list its models within {TIMEOUT_S:g} s")
        except BasisError as problem:
            error = problem
        except Exception as problem:  # a host's own provider may raise anything; the others are listed all the same
            error = TransportError(f"{provider.label} could not list its models ({type(problem).__name__})")
            error.__cause__ = problem
        else:
            self._latest[provider] = models
            return _Known(Listing(provider.id, models), self._now() + ANSWER_HOLDS_S)
        kept = before.listing.models if before else ()
        return _Known(Listing(provider.id, kept, error), self._now() + FAILURE_HOLDS_S)

    def _forget_others(self, question: tuple[Provider, Secret | None]) -> None:
        """A key that was replaced is not kept for the sake of its answer."""
        provider, key = question
        for other in [known for known in self._known if known[0] is provider and known[1] != key]:
            del self._known[other]
            self._asking.pop(other, None)
