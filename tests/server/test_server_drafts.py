"""The unsent prompt that the clients of a session share."""

from collections.abc import Callable

from support.daemon import DaemonProcess
from support.model_server import ModelServer, says
from support.raw_client import RawClient

OpenSession = Callable[..., str]


def draft(client: RawClient, session_id: str, text: str | None = None) -> dict[str, object]:
    return client.call("basis/session/draft", {"sessionId": session_id} | ({} if text is None else {"text": text}))


def test_a_draft_is_there_in_the_other_editor_and_says_whose_it_is(
    daemon: DaemonProcess, open_session: OpenSession
) -> None:
    """Also before the first prompt, when nothing of the session is on disk."""
    first, second = daemon.connect(name="one"), daemon.connect(name="two")
    session_id = open_session(first)

    assert draft(first, session_id)["text"] == ""
    draft(first, session_id, "half a sent")

    found = draft(second, session_id)
    assert (found["text"], found["by"]) == ("half a sent", {"client": "one", "kind": "cli"})


def test_a_draft_outlives_a_killed_daemon_and_an_empty_one_clears_it(
    daemon: DaemonProcess, open_session: OpenSession, model: ModelServer
) -> None:
    model.script(says("hello"))
    client = daemon.connect()
    session_id = open_session(client)
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [{"type": "text", "text": "hi"}]})
    client.event_of_type("run_finished")
    draft(client, session_id, "and then\nthis")

    daemon.restart()
    again = daemon.connect()
    assert draft(again, session_id)["text"] == "and then\nthis"
    draft(again, session_id, "")

    daemon.restart()
    assert draft(daemon.connect(), session_id)["text"] == ""
