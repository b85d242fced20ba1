"""A process that writes to a conversation until it is killed: `python store_writer.py ROOT SEED`.

Tells on standard output what the store has promised, one line after each call returned: `entries N`, `turns N`. Every
entry comes in one append with the end of a turn of the same number, so a reader can see whether appends are whole.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from basis_daemon.runtime.store.base import EntryAdded, TurnEnded
from basis_daemon.runtime.store.files import FileStore
from support.stored import said, stored


def tell(what: str, number: int) -> None:
    os.write(1, b"%s %d\n" % (what.encode(), number))


LONG_CHARACTERS = 1 << 18


async def write_forever(root: Path, chance: random.Random) -> None:
    store = FileStore(root)
    if store.record("agent-1") is None:
        log, entries, turns = store.create(stored()), 0, 0
    else:
        conversation, log = store.open("agent-1")
        entries, turns = len(conversation.transcript), conversation.record.turns
    tell("entries", entries)
    while True:
        match chance.randrange(50):
            case 0:
                await log.sync()
            case 1 | 2 | 3:
                turns += 1
                log.save(stored(turns=turns))
                tell("turns", turns)
            case action:
                text = "x" * LONG_CHARACTERS if action == 4 else None
                log.append(TurnEnded(turn_id=f"turn-{entries}", status="ok"), EntryAdded(said(entries, text)))
                entries += 1
                tell("entries", entries)


if __name__ == "__main__":
    asyncio.run(write_forever(Path(sys.argv[1]), random.Random(sys.argv[2])))
