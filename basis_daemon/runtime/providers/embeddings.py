"""The embeddings wire, as OpenAI and all servers compatible with it speak it (PV-58).

Owns request and response; sending is `remote.py`'s.
"""

from collections.abc import Sequence

import msgspec

from basis_daemon.runtime.providers.abilities import EmbeddingBatch
from basis_daemon.runtime.providers.base import TokenUsage
from basis_daemon.runtime.providers.errors import MalformedStream

PATH = "v1/embeddings"


class _Row(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Row]
    model: str | None = None
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Answer)


def build_body(texts: Sequence[str], model: str) -> bytes:
    return msgspec.json.encode({"model": model, "input": list(texts)})


def read_vectors(body: bytes, count: int, model: str) -> EmbeddingBatch:
    """The vectors of an answer, by the `index` of their texts. Raises `MalformedStream` unless there is one each."""
    try:
        answer = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedStream("the provider's embeddings have another shape than agreed") from error
    by_index = {row.index if row.index is not None else place: row.embedding for place, row in enumerate(answer.data)}
    if len(answer.data) != count or set(by_index) != set(range(count)):
        raise MalformedStream(f"the provider gave {len(answer.data)} embeddings for {count} texts, or some twice")
    usage = answer.usage or _Usage()
    return EmbeddingBatch(
        [by_index[index] for index in range(count)],
        answer.model or model,
        TokenUsage(input_tokens=usage.prompt_tokens, total_tokens=usage.total_tokens),
    )
