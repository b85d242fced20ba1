"""Workspaces and live sessions from inside: opened once for many, snapshots, loading, letting go (DM-3, DM-4)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.errors import LeaseUnavailable, NoSuchSession, WorkspaceMissing
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.channel import Channel
from basis_daemon.server.client import Client
from basis_daemon.server.documents import Documents
from basis_daemon.server.hub import RELEASE_AFTER_S, UNLOAD_AFTER_S, Hub
from basis_daemon.server.runtime_source import RuntimeSource
from basis_daemon.server.turn_runner import PromptOptions
from basis_daemon.server.unfinished import Unfinished
from basis_daemon.server.work import Work
from basis_daemon.server.workspaces import Workspaces
from basis_protocol.asks import Actor
from basis_protocol.sessions import SessionNewParams

pytestmark = pytest.mark.anyio

ANNA = Actor(client="anna", kind="cli")
BARE = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
async def runtime(data_dir: Path) -> AsyncIterator[Runtime]:
    runtime = await asyncio.to_thread(Runtime.builder().with_store_dir(data_dir / "store").build)
    yield runtime
    await runtime.aclose()


@pytest.fixture
def workspaces(runtime: Runtime, work: Work) -> Workspaces:
    return Workspaces(
        lambda: runtime, work=work, announcer=Announcer(), socket="/nowhere.sock", overlay=Documents().overlay
    )


@pytest.fixture
def hub(runtime: Runtime, workspaces: Workspaces, work: Work, data_dir: Path) -> Hub:
    return Hub(
        runtime=RuntimeSource(lambda: runtime),
        workspaces=workspaces,
        work=work,
        announcer=Announcer(),
        asks_directory=data_dir / "asks",
        unfinished=Unfinished(data_dir / "unfinished"),
    )


async def prompted(hub: Hub, repo: Path, text: str = "read a.txt") -> str:
    """A session with one finished turn; its id."""
    session = await hub.new(SessionNewParams(workspace=str(repo)))
    await ask(hub, session.id, text)
    await quiet(hub, session.id)
    return session.id


def reopen(data_dir: Path, session_id: str) -> None:
    """Take and give back the conversation's lease, as another process would."""
    store = FileStore(data_dir / "store")
    store.open(session_id)[1].close()
    store.close()


async def quiet(hub: Hub, session_id: str) -> None:
    """Return when the session has tidied up behind its last turn; nothing announces that."""
    with anyio.fail_after(5):
        while (await hub.get(session_id)).turns.is_working:  # noqa: ASYNC110
            await anyio.sleep(0.002)


async def ask(hub: Hub, session_id: str, text: str, **options: Any) -> str | None:
    """Prompt a session and return the final message."""
    live = await hub.get(session_id)
    accepted = await live.turns.submit(user(text), by=ANNA, options=PromptOptions(**options), when_busy="queue")
    with anyio.fail_after(10):
        return (await live.turns.wait(accepted.turn_id)).final_message


# --- workspaces ------------------------------------------------------------------------------------------------------


async def test_many_opens_at_once_are_one_opening(workspaces: Workspaces, repo: Path) -> None:
    """DM-4."""
    with anyio.fail_after(10):
        opened = await asyncio.gather(*(workspaces.open(str(repo), BARE) for _ in range(20)))

    assert len({id(workspace) for workspace in opened}) == 1


async def test_a_directory_has_one_workspace_however_it_is_spelled(
    workspaces: Workspaces, repo: Path, tmp_path: Path
) -> None:
    """WS-26."""
    link = tmp_path / "link"
    await asyncio.to_thread(link.symlink_to, repo)

    assert await workspaces.open(f"{repo}/", BARE) is await workspaces.open(str(link), BARE)


async def test_opening_again_changes_nothing_unless_something_has_changed(workspaces: Workspaces, repo: Path) -> None:
    first = await workspaces.open(str(repo), BARE)

    assert await workspaces.open(str(repo)) is first
    assert await workspaces.open(str(repo), {**BARE, "SHLVL": "3", "TERM": "dumb", "TMUX": "x"}) is first
    await asyncio.to_thread((repo / "AGENTS.md").write_text, "Be brief.\n")
    second = await workspaces.open(str(repo))
    assert second is not first
    assert [document.content for document in second.context.documents] == ["Be brief.\n"]
    third = await workspaces.open(str(repo), {**BARE, "VIRTUAL_ENV": "/venv"})
    assert third is not second
    assert workspaces.current(str(repo)) is third


async def test_a_failed_opening_is_told_to_all_and_tried_again(workspaces: Workspaces, tmp_path: Path) -> None:
    """DM-4: failures are not cached."""
    missing = tmp_path / "later"
    with pytest.raises(WorkspaceMissing):
        await workspaces.open(str(missing), BARE)

    await asyncio.to_thread(missing.mkdir)

    assert (await workspaces.open(str(missing), BARE)).root == missing


async def test_a_workspace_closed_while_keys_change_stays_closed(
    workspaces: Workspaces, repo: Path, tmp_path: Path
) -> None:
    """LC-2. What is open is decided anew, and one whose directory is gone stays as it was."""
    other, gone = tmp_path / "other", tmp_path / "gone"
    for directory in (other, gone):
        await asyncio.to_thread(directory.mkdir)
    before = [await workspaces.open(str(root), BARE) for root in (repo, other, gone)]
    await asyncio.to_thread(gone.rmdir)

    with anyio.fail_after(10):
        await asyncio.gather(workspaces.credentials_changed(), workspaces.close(str(other)))

    assert workspaces.current(str(other)) is None
    assert workspaces.current(str(repo)) not in (None, before[0])
    assert workspaces.current(str(gone)) is before[2]


async def test_an_environment_sent_while_keys_change_stays_in_force(workspaces: Workspaces, repo: Path) -> None:
    await workspaces.open(str(repo), BARE)
    with anyio.fail_after(10):
        _, latest = await asyncio.gather(
            workspaces.credentials_changed(), workspaces.open(str(repo), {**BARE, "VIRTUAL_ENV": "/venv"})
        )
        assert (await workspaces.open(str(repo))).environment == latest.environment


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_a_new_environment_is_used_from_the_next_turn_on_and_nothing_else_is_forgotten(
    hub: Hub, workspaces: Workspaces, repo: Path
) -> None:
    """protocol.md 6: commands run with the workspace's snapshot. The mode and answers of the session stay."""
    await workspaces.open(str(repo), {**BARE, "COLOUR": "red"})
    session = await hub.new(SessionNewParams(workspace=str(repo), config={"mode": "always"}))
    before = await ask(hub, session.id, "!echo colour $COLOUR")

    await workspaces.open(str(repo), {**BARE, "COLOUR": "blue"})
    after = await ask(hub, session.id, "!echo colour $COLOUR")

    assert before is not None and "colour red" in before
    assert after is not None and "colour blue" in after
    assert session.run.mode == "always"
    assert len(session.run.transcript) > 4


async def test_a_session_nobody_uses_is_let_go_and_loaded_when_asked_for(hub: Hub, repo: Path, data_dir: Path) -> None:
    session_id = await prompted(hub, repo)
    live = hub.find(session_id)
    assert live is not None
    last_seq, now = live.session.journal.last_seq, live.session.last_used

    hub.unload_idle(now + UNLOAD_AFTER_S - 1)
    assert hub.find(session_id) is live
    with pytest.raises(LeaseUnavailable):
        await asyncio.to_thread(reopen, data_dir, session_id)
    hub.unload_idle(now + UNLOAD_AFTER_S + 1)
    assert hub.find(session_id) is None
    await asyncio.to_thread(reopen, data_dir, session_id)

    again = await hub.get(session_id)
    assert again.session.journal.last_seq == last_seq
    assert again.session.title == "read a.txt"


async def test_a_watched_session_stays_and_gives_its_memory_back(hub: Hub, repo: Path) -> None:
    """Less than 300 kB for an idle session, its events included."""
    session_id = await prompted(hub, repo)
    live = hub.find(session_id)
    assert live is not None
    client = Client("c", Channel(lambda body: None, lambda problem: None))
    live.session.attach(client, None)
    assert live.session.journal.memory_bytes > 0

    hub.unload_idle(live.session.last_used + UNLOAD_AFTER_S + RELEASE_AFTER_S)

    assert hub.find(session_id) is live
    assert live.session.journal.memory_bytes == 0
    assert live.session.journal.can_replay(0)


async def test_a_session_asked_for_by_many_at_once_is_loaded_once(hub: Hub, repo: Path) -> None:
    session_id = await prompted(hub, repo)
    await hub.close(session_id)

    with anyio.fail_after(10):
        loaded = await asyncio.gather(*(hub.get(session_id) for _ in range(10)))

    assert len({id(live) for live in loaded}) == 1


async def test_a_session_that_is_not_there_says_so(hub: Hub) -> None:
    with pytest.raises(NoSuchSession):
        await hub.get("agent-none")
    with pytest.raises(NoSuchSession):
        await hub.transcript("agent-none")


async def test_a_conversation_can_be_read_without_its_directory(hub: Hub, workspaces: Workspaces, repo: Path) -> None:
    """A repository that was moved away takes nothing of what was said with it."""
    session_id = await prompted(hub, repo)
    await hub.close(session_id)
    await workspaces.close(str(repo))
    await asyncio.to_thread(repo.rename, repo.with_name("moved"))

    assert len(await hub.transcript(session_id)) > 0
    with pytest.raises(WorkspaceMissing):
        await hub.get(session_id)


async def test_closing_a_workspace_leaves_its_sessions_working(hub: Hub, workspaces: Workspaces, repo: Path) -> None:
    """LC-2."""
    session_id = await prompted(hub, repo)

    await workspaces.close(str(repo))

    assert await ask(hub, session_id, "read a.txt") is not None


async def test_a_session_is_loaded_while_the_directory_is_opened_with_ever_other_environments(
    hub: Hub, workspaces: Workspaces, repo: Path
) -> None:
    """Three editors reconnect to a restarted daemon at once, each with its own environment, and none is refused."""
    session_id = await prompted(hub, repo)

    async def reopen(number: int) -> None:
        for turn in range(20):
            await workspaces.open(str(repo), {"PATH": "/usr/bin:/bin", "WHO": f"{number}.{turn}"})

    async def load() -> None:
        for _ in range(20):
            await hub.close(session_id)
            assert (await hub.get(session_id)).session.id == session_id

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            for number in range(3):
                tasks.start_soon(reopen, number)
