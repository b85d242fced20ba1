"""Model servers that run on this machine, looked for when a person has chosen nothing, and only ever offered.

Owns when is looked and how long an answer holds. How they are recognised is `runtime/providers/local_detection.py`'s.
"""

import asyncio
from collections.abc import Mapping

ANSWER_HOLDS_S = 30.0
"""Seconds after which is looked again: a person may just be starting one because of what they were told."""


class LocalServers:
    """One workspace's view. `environment` is the client's; it may say where Ollama is, or to look for nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._sentences: list[str] = []
        self._asked_at: float | None = None

    async def sentences(self) -> list[str]:
        """A sentence for every server found, with how to use it."""
        now = asyncio.get_running_loop().time()
        if self._asked_at is None or now - self._asked_at > ANSWER_HOLDS_S:
            from basis_daemon.runtime.providers.local_detection import detect

            self._sentences = [found.sentence for found in await detect(self._environment)]
            self._asked_at = now
        return list(self._sentences)
