"""Processes killed while they write (ST-19, ST-23; architecture.md 5). Real processes, real SIGKILL."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from basis_daemon.errors import LeaseUnavailable
from basis_daemon.runtime.store.files import FileStore
from support import store_writer

KILLS = 32


class Writer:
    """A running `store_writer` and what it said it was promised."""

    def __init__(self, root: Path, seed: str) -> None:
        self.promised: dict[str, int] = {"entries": 0, "turns": 0}
        self._process = subprocess.Popen(
            [sys.executable, store_writer.__file__, str(root), seed],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdout is not None
        self._said = self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(self, lines: int) -> None:
        """Until it has been promised that many things more."""
        for _ in range(lines):
            self._hear(self._said.readline())

    def kill(self) -> None:
        """End it without warning, and hear what it said until then."""
        self._process.kill()
        for line in self._said:
            self._hear(line)
        self._process.wait()
        self._said.close()

    def _hear(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return
        what, number = line.split()
        self.promised[what.decode()] = int(number)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_whenever_a_writer_is_killed_everything_promised_is_there(tmp_path: Path) -> None:
    """Nothing promised is lost, no append is there in part, and the next process goes on from there at once."""
    chance = random.Random()
    root = tmp_path / "store"
    entries = turns = 0
    for number in range(KILLS):
        writer = Writer(root, f"seed-{number}")
        writer.listen(chance.choice((1, 2, 5, 20, 100)))
        writer.kill()

        store = FileStore(root)
        found = store.peek("agent-1")
        kept = len(found.transcript)
        assert kept >= max(entries, writer.promised["entries"])
        assert found.record.turns >= max(turns, writer.promised["turns"])
        assert [entry.id for entry in found.transcript] == [f"entry-{n}" for n in range(kept)]
        assert list(found.outcomes) == [f"turn-{n}" for n in range(max(0, kept - 64), kept)]
        assert store.list() == [found.record]
        store.open("agent-1")[1].close()
        entries, turns = kept, found.record.turns
    assert entries > KILLS


def test_a_conversation_open_in_another_process_names_that_process(tmp_path: Path) -> None:
    """The lease is the kernel's: held while the other lives, free the moment it is killed (ST-19)."""
    writer = Writer(tmp_path / "store", "seed")
    writer.listen(1)
    store = FileStore(tmp_path / "store")
    try:
        with pytest.raises(LeaseUnavailable, match=f"process {writer.pid}") as refused:
            store.open("agent-1")
        with pytest.raises(LeaseUnavailable):
            store.forget("agent-1")
    finally:
        writer.kill()

    assert refused.value.details["holder"] == writer.pid
    store.open("agent-1")[1].close()
    store.close()
