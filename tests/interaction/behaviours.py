"""What a person can rely on: one sentence each, bound to the tests that show it.

Owns the list. A test says which entry it shows with `@behaviour("id")`; `test_interaction_behaviours.py` fails when an
entry has no test or a test names an entry that is not here.
"""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`source` says where it was agreed: a page and its section."""

    id: str
    sentence: str
    source: str


def behaviour(name: str) -> pytest.MarkDecorator:
    """Mark a test as showing the behaviour of that id."""
    return pytest.mark.behaviour(name)


BEHAVIOURS: tuple[Behaviour, ...] = (
    Behaviour(
        "stranger_can_join",
        "A client written from the protocol page alone can initialise, open a workspace, prompt and read the answer.",
        "protocol.md 1 to 4",
    ),
    Behaviour(
        "same_events_for_all", "Two clients of one session see the same events with the same numbers.", "protocol.md 4"
    ),
    Behaviour(
        "nothing_missed",
        "A client that was gone attaches with the last number it saw and gets exactly what it missed.",
        "protocol.md 3, attach",
    ),
    Behaviour("late_is_fine", "A client that attaches late is shown the conversation so far.", "protocol.md 3, attach"),
    Behaviour("ask_first", "Nothing with consequences happens before somebody has allowed it.", "protocol.md 5"),
    Behaviour("refused_never_runs", "A refused call leaves no trace, and the model reads the reason.", "protocol.md 5"),
    Behaviour(
        "first_answer_wins", "The first answer to an ask decides; a later one is told who decided.", "protocol.md 5"
    ),
    Behaviour(
        "asks_outlive_everyone",
        "An ask outlives the client it was shown to and a killed daemon; answering it carries the turn on.",
        "protocol.md 5, architecture.md 5",
    ),
    Behaviour("work_outlives_windows", "A turn goes on when the client that started it is gone.", "architecture.md 4"),
    Behaviour(
        "conversation_on_disk",
        "A conversation goes on after the daemon was killed, with all that was said.",
        "architecture.md 5",
    ),
    Behaviour(
        "garbage_is_contained",
        "A client's garbage, crash or exit ends its own connection and nothing else.",
        "protocol.md 1",
    ),
    Behaviour("handshake_first", "A request before the handshake is refused with its own code.", "protocol.md 2"),
    Behaviour(
        "versions_are_named", "A client of another version is told both ranges and how to upgrade.", "protocol.md 2"
    ),
    Behaviour("unknown_is_ignored", "Unknown fields are ignored; unknown methods are named as such.", "protocol.md 2"),
    Behaviour(
        "never_a_dead_end",
        "With no key and no server a first prompt is answered, and says how to connect a model.",
        "local-model.md 4",
    ),
    Behaviour("demo", "The demonstration does what it says and leaves nothing behind.", "README"),
)
