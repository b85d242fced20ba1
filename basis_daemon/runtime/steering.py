"""What is said to an agent while it works: now, or when it would otherwise be done (runtime.md 3.7).

Owns the two queues and how much of each is taken at a time. They live as long as the live session and are not written
anywhere: a prompt that has to survive is accepted into the conversation first, and waits here as well.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from basis_daemon.runtime.prompts import Prompt, new_prompt, require_content
from basis_daemon.runtime.store.base import PromptAccepted

QueueKind = Literal["steering", "follow_up"]
QueueMode = Literal["one_at_a_time", "all"]


class Steering:
    """A handle for any task or thread (AG-23). `steer` is said after the round under way, `follow_up` when the agent
    would otherwise finish; what no turn has taken waits for the next one, or for `run_queued`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[QueueKind, deque[PromptAccepted]] = {"steering": deque(), "follow_up": deque()}
        self._modes: dict[QueueKind, QueueMode] = {"steering": "one_at_a_time", "follow_up": "one_at_a_time"}

    def steer(self, prompt: Prompt) -> None:
        """Raises `EmptyPrompt`."""
        self.add("steering", _checked(prompt))

    def follow_up(self, prompt: Prompt) -> None:
        """Raises `EmptyPrompt`."""
        self.add("follow_up", _checked(prompt))

    def set_mode(self, kind: QueueKind, mode: QueueMode) -> None:
        """How much of a queue is taken at once. Holds for what waits already, too."""
        with self._lock:
            self._modes[kind] = mode

    def add(self, kind: QueueKind, prompt: PromptAccepted) -> None:
        with self._lock:
            self._queues[kind].append(prompt)

    def take(self, kind: QueueKind) -> list[PromptAccepted]:
        """Remove what is to be said next, oldest first; empty when nothing waits."""
        with self._lock:
            queue = self._queues[kind]
            number = len(queue) if self._modes[kind] == "all" else min(1, len(queue))
            return [queue.popleft() for _ in range(number)]

    def take_first(self) -> PromptAccepted | None:
        """Remove the one prompt that would be said first."""
        with self._lock:
            return next((queue.popleft() for queue in self._queues.values() if queue), None)

    def put_back(self, kind: QueueKind, prompts: Sequence[PromptAccepted]) -> None:
        """Return what was taken and not said, to the front (AG-24)."""
        with self._lock:
            self._queues[kind].extendleft(reversed(prompts))

    def discard(self, is_gone: Callable[[PromptAccepted], bool]) -> None:
        """Drop what somebody else sees to."""
        with self._lock:
            for kind, queue in self._queues.items():
                self._queues[kind] = deque(prompt for prompt in queue if not is_gone(prompt))

    def waiting(self, kind: QueueKind | None = None) -> list[PromptAccepted]:
        """What waits, in the order in which it would be said."""
        with self._lock:
            return [prompt for key, queue in self._queues.items() if kind in (None, key) for prompt in queue]


def _checked(prompt: Prompt) -> PromptAccepted:
    accepted = new_prompt(prompt)
    require_content(accepted.message)
    return accepted
