"""The hooks of one runtime: which of them judge the calls of which sessions (TL-21, HO-5).

Owns their order and their coming and going. Nothing of a hook is called here, nor let go of, with the lock held.
"""

import threading
from collections import deque
from dataclasses import dataclass
from itertools import count

from basis_daemon.runtime.guards import Guard
from basis_daemon.runtime.hooks.chain import HookChain
from basis_daemon.runtime.hooks.contract import ExecutionHook, PostHook, PreHook


@dataclass(frozen=True, slots=True, eq=False)
class _Live:
    generation: int
    audience: str | None
    chain: HookChain


class HookTable:
    """The hooks of one runtime. The permanent ones judge every session; others come and go with their guards (TL-21).

    A session is judged by the global ones, then by those of its audience: a host's own code is asked ahead of what a
    repository brought along (HO-5). Safe from any thread.
    """

    def __init__(self, permanent: HookChain | None = None) -> None:
        self.forgotten: deque[int] = deque()
        self._permanent = permanent or HookChain()
        self._lock = threading.Lock()
        self._generations = count(1)
        self._live: tuple[_Live, ...] = ()

    def register_pre_hook(self, hook: PreHook, *, audience: str | None = None) -> Guard:
        return self._register(HookChain(pre=(hook,)), audience)

    def register_post_hook(self, hook: PostHook, *, audience: str | None = None) -> Guard:
        return self._register(HookChain(post=(hook,)), audience)

    def register_execution_hooks(self, *hooks: ExecutionHook, audience: str | None = None) -> Guard:
        """A batch that comes and goes as one."""
        return self._register(HookChain(execution=hooks), audience)

    def snapshot(self, audience: str | None) -> HookChain:
        """Who is asked about a call of an agent of `audience`."""
        dropped: list[_Live] = []
        with self._lock:
            live = self._present(dropped)
        everyones = [each.chain for each in live if each.audience is None]
        own = [each.chain for each in live if audience is not None and each.audience == audience]
        chains = [self._permanent, *everyones, *own]
        if len(chains) == 1:
            return self._permanent
        return HookChain(
            pre=tuple(hook for chain in chains for hook in chain.pre),
            execution=tuple(hook for chain in chains for hook in chain.execution),
            post=tuple(hook for chain in chains for hook in chain.post),
        )

    def withdraw(self, generation: int) -> bool:
        """Take back what was registered as this generation; false if it is gone already."""
        dropped: list[_Live] = []
        with self._lock:
            before = self._present(dropped)
            dropped += [each for each in before if each.generation == generation]
            self._live = tuple(each for each in before if each.generation != generation)
            return len(self._live) < len(before)

    def _register(self, chain: HookChain, audience: str | None) -> Guard:
        dropped: list[_Live] = []
        with self._lock:
            row = _Live(next(self._generations), audience, chain)
            self._live = (*self._present(dropped), row)
        return Guard(self, row.generation)

    def _present(self, dropped: list[_Live]) -> tuple[_Live, ...]:
        """The rows whose guards are not gone. The others move to `dropped`, to be let go of without the lock: their
        destructors are a host's code."""
        while self.forgotten:
            gone = self.forgotten.popleft()
            dropped += [each for each in self._live if each.generation == gone]
            self._live = tuple(each for each in self._live if each.generation != gone)
        return self._live
