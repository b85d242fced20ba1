"""What only some providers can do besides answering: embeddings, compacting a history, summarising memories (2.12).

Owns the contracts, and the refusal of everybody else (PV-59). A provider that wraps another names it as `inner` and so
forwards all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast, runtime_checkable

from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.providers.base import Provider, Request, TokenUsage
from basis_daemon.runtime.providers.errors import UnsupportedCapability


@dataclass(frozen=True, slots=True)
class EmbeddingBatch:
    """One vector for each text, in the order of the texts."""

    vectors: list[list[float]]
    model: str
    usage: TokenUsage


@runtime_checkable
class EmbeddingProvider(Protocol):
    """Turns texts into vectors (PV-58). Raises `ProviderError` kinds; tries again as its definition says (PV-56)."""

    @property
    def can_embed(self) -> bool: ...

    async def embed(self, text: str, model: str) -> list[float]: ...

    async def embed_batch(self, texts: Sequence[str], model: str) -> EmbeddingBatch: ...


@runtime_checkable
class HistoryCompactor(Protocol):
    """Shortens a conversation on the provider's side."""

    @property
    def can_compact(self) -> bool: ...

    async def compact(self, request: Request) -> list[Message]:
        """The messages that stand for those of `request`."""
        ...


@runtime_checkable
class MemorySummarizer(Protocol):
    """Says in a few words what was learnt, on the provider's side."""

    @property
    def can_summarize_memories(self) -> bool: ...

    async def summarize_memories(self, request: Request) -> str: ...


def embeddings_of(provider: Provider) -> EmbeddingProvider:
    """`provider`'s embeddings. Raises `UnsupportedCapability`."""
    able = _able(provider, EmbeddingProvider)
    if able is None or not able.can_embed:
        raise _unsupported(provider, "embeddings")
    return able


async def compact(provider: Provider, request: Request) -> list[Message]:
    """Have `provider` shorten a conversation. Raises `UnsupportedCapability` ahead of all traffic, if it can't."""
    able = _able(provider, HistoryCompactor)
    if able is None or not able.can_compact:
        raise _unsupported(provider, "compacting of histories")
    return await able.compact(request)


async def summarize_memories(provider: Provider, request: Request) -> str:
    """Have `provider` summarise memories. Raises `UnsupportedCapability` ahead of all traffic, if it can't."""
    able = _able(provider, MemorySummarizer)
    if able is None or not able.can_summarize_memories:
        raise _unsupported(provider, "summaries of memories")
    return await able.summarize_memories(request)


Ability = TypeVar("Ability")


def _able(provider: Provider, ability: type[Ability]) -> Ability | None:
    """The provider, or the one it wraps, if it has the ability."""
    found: object | None = provider
    while found is not None:
        if isinstance(found, ability):
            return found
        found = cast("object | None", getattr(found, "inner", None))
    return None


def _unsupported(provider: Provider, what: str) -> UnsupportedCapability:
    return UnsupportedCapability(f"{provider.label} ({provider.id}) has no {what}")
