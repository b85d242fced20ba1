"""Anthropic's counts of tokens, in our terms.

Owns the one place where they differ: this vendor counts what came from the cache and went to it beside the input, and
everybody here counts it as a part of the input.
"""

from basis_daemon.runtime.providers.anthropic_shapes import UsageShape
from basis_daemon.runtime.providers.base import TokenUsage
from basis_daemon.runtime.providers.wire import count


class Counts:
    """The counts of one answer, as they become known."""

    def __init__(self) -> None:
        self._latest = UsageShape()

    def take(self, later: UsageShape | None) -> None:
        """Later counts replace earlier ones, field by field (PV-19)."""
        for name in UsageShape.__struct_fields__ if later is not None else ():
            value = getattr(later, name)
            value = value if name == "output_tokens_details" else count(value)
            if value is not None:
                setattr(self._latest, name, value)

    def usage(self) -> TokenUsage | None:
        """All that was counted; `None` if nothing was (2.6)."""
        latest = self._latest
        if latest == UsageShape():
            return None
        read, written = latest.cache_read_input_tokens, latest.cache_creation_input_tokens
        details = latest.output_tokens_details
        return TokenUsage(
            input_tokens=None if latest.input_tokens is None else latest.input_tokens + (read or 0) + (written or 0),
            output_tokens=latest.output_tokens,
            cache_read_tokens=read,
            cache_creation_tokens=written,
            reasoning_tokens=count(details.thinking_tokens) if details else None,
        )
