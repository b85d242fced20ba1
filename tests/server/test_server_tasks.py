"""Background commands as clients see them: listed, read, ended."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from basis_daemon.processes import CommandRequest
from basis_daemon.runtime.background import NoSuchTask, TaskWatch
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.server.methods import tasks
from basis_daemon.server.runtime_source import RuntimeSource
from basis_daemon.server.services import Services
from basis_protocol.sessions import TaskIdParams, TaskListParams
from support.daemon import DaemonProcess, OpenSession

pytestmark = pytest.mark.anyio

client = cast(Any, None)
"""No method here asks who calls."""


def serving(runtime: Runtime) -> Services:
    source = RuntimeSource(lambda: runtime)
    source.get()
    return cast(Services, SimpleNamespace(runtime=source))


async def test_tasks_are_listed_read_and_ended(tmp_path: Path) -> None:
    """CO-15, CO-16, SE-10: those of one session or of all; what they print so far; ended with what they started."""
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        services, background = serving(runtime), runtime.background

        def start(command: str, agent_id: str) -> str:
            request = CommandRequest(command, tmp_path, 60.0)
            return background.start(request, agent_id=agent_id, limit=8, watch=TaskWatch()).id

        sleeping, quick = start("echo up; sleep 60", "one"), start("echo done\necho well", "two")
        with anyio.fail_after(10):
            await background.wait(quick)
            while "up" not in background.output(sleeping):  # noqa: ASYNC110 - shows in nothing else
                await anyio.sleep(0.01)

            of_one = (await tasks.list_tasks(services, client, TaskListParams(session_id="one"))).tasks
            of_all = (await tasks.list_tasks(services, client, TaskListParams())).tasks
            assert [task.task_id for task in of_one] == [sleeping]
            assert [(task.session_id, task.status, task.title) for task in of_all] == [
                ("one", "running", "echo up; sleep 60"),
                ("two", "finished", "echo done …"),
            ]
            assert (await tasks.output(services, client, TaskIdParams(task_id=sleeping))).text == "stdout: up"
            assert (await tasks.output(services, client, TaskIdParams(task_id=quick))).text == "done\nwell"
            for _ in range(2):
                await tasks.kill(services, client, TaskIdParams(task_id=sleeping))
        assert background.get(sleeping).status == "interrupted"
        for method in (tasks.output, tasks.kill):
            with pytest.raises(NoSuchTask):
                await method(services, client, TaskIdParams(task_id="bg-9"))


def test_daemon_answers_for_tasks(daemon: DaemonProcess, open_session: OpenSession) -> None:
    """Before there is a runtime, and with one."""
    connected = daemon.connect()
    assert connected.call("basis/task/list", {}) == {"tasks": []}
    assert connected.refusal("basis/task/output", {"taskId": "bg-9"})["data"]["kind"] == "no_such_task"
    session_id = open_session(connected)
    assert connected.call("basis/task/list", {"sessionId": session_id}) == {"tasks": []}
    refused = connected.refusal("basis/task/kill", {"taskId": "bg-9"})
    assert refused["data"]["kind"] == "no_such_task" and "bg-9" in refused["message"]


def test_description_of_a_workspace_names_its_skills(
    daemon: DaemonProcess, open_session: OpenSession, repo: Path
) -> None:
    """SK-5, DI-6: each with the file it is from."""
    path = repo / ".basis" / "skills" / "review" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\ndescription: Look twice.\n---\nDo it.\n")
    connected = daemon.connect()
    open_session(connected)
    described = connected.call("basis/workspace/describe", {"path": str(repo)})
    assert described["skills"] == [
        {
            "name": "review",
            "description": "Look twice.",
            "path": str(path.resolve()),
            "root": str(path.resolve().parent.parent),
            "modelInvocable": True,
        }
    ]
    assert "load_skill" in described["tools"]
