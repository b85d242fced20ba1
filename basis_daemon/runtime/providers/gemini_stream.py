"""Maps what the generateContent wire streams (PV-47).

Owns which block a part belongs to, whether parts repeat what was said, and when the answer is complete. There is no
mark at its end: the reason it ended for comes with the last chunk.
"""

import secrets
from typing import Any

import msgspec

from basis_daemon.runtime.messages import Provenance
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    MessageDelta,
    MessageStopped,
    ProviderEvent,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    TokenUsage,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import (
    AnswerBlocked,
    InvalidRequest,
    MalformedStream,
    ProviderError,
    RetryableError,
    StreamCut,
)
from basis_daemon.runtime.providers.failures import Target, from_stream
from basis_daemon.runtime.providers.gemini_shapes import Called, Candidate, Chunk, Counts, Failure, Feedback
from basis_daemon.runtime.providers.sse import SseEvent
from basis_daemon.runtime.providers.wire import Batch, count, json_text

_STOP_REASONS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", "CONTINUATION": "max_tokens"}
_REFUSALS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
    }
)
"""Reasons that the vendor's filters give: what was said until then is a refusal, nothing at all an error."""
_SLIPS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
"""The model made a slip that it is not likely to make again."""

MIN_REPEATED = 16
"""Characters that are taken for a repetition when they come again just so; less may be said twice."""
MIN_REPEATED_AND_MORE = 3
"""The same when more follows them in the same part."""

_decode = msgspec.json.Decoder(Chunk).decode


# --- the answer ------------------------------------------------------------------------------------------------------


class _Prose:
    """A block of text or of thoughts, to which parts add, or which they repeat from its beginning."""

    __slots__ = ("index", "is_thought", "repeats", "said")

    def __init__(self, index: int, is_thought: bool) -> None:
        self.index = index
        self.is_thought = is_thought
        self.said = ""
        """All of it while that matters: until it is known that parts add, or for ever if they repeat."""
        self.repeats: bool | None = None

    def new_in(self, text: str) -> str:
        """What of `text` was not said before. The second part tells how all others are meant."""
        if self.repeats is False:
            return text
        said = self.said
        if self.repeats is None and said:
            self.repeats = _is_repetition(said, text)
        if said and self.repeats and text.startswith(said):
            self.said = text
            return text[len(said) :]
        self.said = "" if self.repeats is False else said + text
        return text


def _is_repetition(said: str, text: str) -> bool:
    has_more = len(text) > len(said) >= MIN_REPEATED_AND_MORE and any(map(str.isalpha, said))
    return text.startswith(said) and (has_more or len(said) >= MIN_REPEATED)


class GeminiMapper:
    """Maps one answer's chunks. Blocks are numbered by us: places in a chunk say nothing about the last one (PV-13)."""

    def __init__(self, target: Target, provenance: Provenance) -> None:
        self._target = target
        self._provenance = provenance
        self._batch = Batch()
        self._next_index = 0
        self._prose: _Prose | None = None
        self._thought: _Prose | None = None
        """The last block of thoughts: open to the end, because its seal may come with a later part."""
        self._seal: str | None = None
        self._calls: list[tuple[str | None, bytes]] = []
        self._is_repeating = False
        self._has_started = self._has_spoken = False
        self._finish_reason: str | None = None
        self._finish_message: str | None = None
        self._counts: Counts | None = None
        self.is_complete = False

    def feed(self, events: list[SseEvent]) -> list[ProviderEvent]:
        for _, data in events:
            try:
                chunk = _decode(data)
            except (msgspec.DecodeError, RecursionError) as error:
                raise MalformedStream(f"{self._target.label} sent an event that can't be read") from error
            if isinstance(chunk.error, Failure):
                raise from_stream(self._target, chunk.error.code or chunk.error.status, chunk.error.message)
            if chunk.error is not None:
                raise from_stream(self._target, None, chunk.error)
            if not self._has_started and (chunk.candidates or chunk.response_id):
                self._has_started = True
                self._batch.add(ResponseStarted(chunk.response_id, chunk.model_version))
            if chunk.usage_metadata is not None:
                self._count(chunk.usage_metadata)
            if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
                raise self._blocked_prompt(chunk.prompt_feedback)
            if chunk.candidates:
                self._candidate(chunk.candidates[0])
        return self._batch.take()

    def finish(self, *, marked: bool) -> list[ProviderEvent]:
        if self._finish_reason is None:
            raise StreamCut(f"{self._target.label} ended the stream in the middle of the answer")
        reason = self._stop_reason(self._finish_reason)
        self._close_prose()
        self._close_thought()
        self._batch.add(MessageDelta(reason, _usage(self._counts)))
        self._batch.add(MessageStopped())
        self.is_complete = True
        return self._batch.take()

    def _candidate(self, candidate: Candidate) -> None:
        if candidate.finish_reason:
            self._finish_reason = candidate.finish_reason
            self._finish_message = candidate.finish_message or self._finish_message
        parts = candidate.content.parts if candidate.content is not None else None
        calls = 0
        for part in parts or ():
            if part.function_call is not None:
                self._call(calls, part.function_call, part.thought_signature)
                calls += 1
            elif part.text is not None:
                self._say(part.text, bool(part.thought))
                if part.thought_signature:
                    self._seal = part.thought_signature

    # --- prose

    def _say(self, text: str, is_thought: bool) -> None:
        if not text:
            return
        prose = self._prose
        if prose is None or prose.is_thought is not is_thought:
            prose = self._resumed(text, is_thought) or self._open_prose(is_thought)
        new = prose.new_in(text)
        if prose.repeats:
            self._is_repeating = True
        if new:
            self._has_spoken = True
            self._batch.delta(ThinkingDelta if is_thought else TextDelta, prose.index, new)

    def _resumed(self, text: str, is_thought: bool) -> _Prose | None:
        """The thoughts that a chunk repeats ahead of the text it continues."""
        thought = self._thought
        return thought if is_thought and thought is not None and _is_repetition(thought.said, text) else None

    def _open_prose(self, is_thought: bool) -> _Prose:
        self._close_prose()
        if is_thought:
            self._close_thought()
        prose = self._prose = _Prose(self._new_index(), is_thought)
        if is_thought:
            self._thought = prose
        self._batch.add(BlockStarted(prose.index, "thinking" if is_thought else "text"))
        return prose

    def _close_prose(self) -> None:
        if self._prose is not None and not self._prose.is_thought:
            self._batch.add(BlockStopped(self._prose.index))
        self._prose = None

    def _close_thought(self) -> None:
        """End the last thoughts, sealed with what came along with them or behind them."""
        if self._thought is None:
            return
        if self._seal is not None:
            self._batch.add(ThinkingSealed(self._thought.index, signature=self._seal, provenance=self._provenance))
            self._seal = None
        self._batch.add(BlockStopped(self._thought.index))
        self._thought = None

    # --- calls

    def _call(self, place: int, call: Called, signature: str | None) -> None:
        """A call comes whole. One that a chunk repeats is told by its id, or by its place among repeated parts."""
        text = _input_text(call.args)
        known = (call.id, f"{call.name}({text})".encode())
        if (call.id and any(id == call.id for id, _ in self._calls)) or (
            self._is_repeating and place < len(self._calls) and self._calls[place] == known
        ):
            return
        self._calls.append(known)
        self._close_prose()
        self._has_spoken = True
        index = self._new_index()
        self._batch.add(
            BlockStarted(
                index,
                "tool_use",
                call.id or f"call_{secrets.token_hex(8)}",
                call.name or "",
                item_id=call.id,
                signature=signature,
                provenance=self._provenance if signature or call.id else None,
            )
        )
        if text:
            self._batch.delta(ToolInputDelta, index, text)
        self._batch.add(BlockStopped(index))

    def _new_index(self) -> int:
        self._next_index += 1
        return self._next_index - 1

    # --- the end

    def _stop_reason(self, reason: str) -> str:
        """What the answer ended for, in our words. Raises for one that is none, in the words of the vendor."""
        if reason in _SLIPS and not self._calls:
            raise RetryableError(f"{self._target.label} made a call that can't be read{self._why(reason)}")
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise InvalidRequest(f"{self._target.label} misses the signature of an earlier call{self._why(reason)}")
        if reason in _REFUSALS:
            if self._has_spoken:
                return "refusal"
            raise AnswerBlocked(f"{self._target.label} gives no answer to this{self._why(reason)}")
        if self._calls:
            return "tool_use"
        if reason not in _STOP_REASONS and not self._has_spoken:
            raise ProviderError(f"{self._target.label} gave up on the answer{self._why(reason)}")
        return _STOP_REASONS.get(reason, reason.lower())

    def _why(self, reason: str) -> str:
        message = self._target.clean(self._finish_message or "")
        return f" ({self._target.clean(reason)})" + (f": {message}" if message else "")

    def _blocked_prompt(self, feedback: Feedback) -> AnswerBlocked:
        why = self._target.clean(feedback.block_reason or "")
        said = self._target.clean(feedback.block_reason_message or "")
        text = f"{self._target.label} does not take this prompt ({why})" + (f": {said}" if said else "")
        return AnswerBlocked(text, hint="say it in another way, or leave out what its filters object to")

    def _count(self, counts: Counts) -> None:
        """Later counts replace earlier ones, field by field (PV-19)."""
        if self._counts is None:
            self._counts = counts
            return
        for name in Counts.__struct_fields__:
            if count(getattr(counts, name)) is not None:
                setattr(self._counts, name, getattr(counts, name))


def _input_text(arguments: Any) -> str:
    """The input of a call as text; what is no object is kept as it came, for whoever reports it."""
    if arguments is None or arguments == {}:
        return ""
    return arguments if isinstance(arguments, str) else json_text(arguments)


def _usage(counts: Counts | None) -> TokenUsage | None:
    if counts is None:
        return None
    return TokenUsage(
        input_tokens=count(counts.prompt_token_count),
        output_tokens=count(counts.candidates_token_count),
        cache_read_tokens=count(counts.cached_content_token_count),
        thoughts_tokens=count(counts.thoughts_token_count),
        total_tokens=count(counts.total_token_count),
        tool_input_tokens=count(counts.tool_use_prompt_token_count),
    )
