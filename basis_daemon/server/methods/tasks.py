"""`basis/task/*`: commands that run in the background – which there are, what they print, and ending one.

Subagents are told of on their parents' streams and end with their turns; they are not listed here.
"""

from basis_daemon.runtime.background import BackgroundTask, BackgroundTasks, NoSuchTask
from basis_daemon.runtime.command_text import titled
from basis_daemon.server.client import Client
from basis_daemon.server.services import Services
from basis_protocol.base import Empty
from basis_protocol.sessions import TaskIdParams, TaskInfo, TaskListParams, TaskListResult, TaskOutputResult


async def list_tasks(services: Services, client: Client, params: TaskListParams) -> TaskListResult:
    runtime = services.runtime.built
    tasks = runtime.background.tasks(params.session_id) if runtime is not None else ()
    return TaskListResult(tasks=[_info(task) for task in tasks])


async def output(services: Services, client: Client, params: TaskIdParams) -> TaskOutputResult:
    """What it has printed: the newest while it runs, its beginning and its end afterwards."""
    return TaskOutputResult(text=_tasks(services, params.task_id).output(params.task_id))


async def kill(services: Services, client: Client, params: TaskIdParams) -> Empty:
    """End a task with all it has started. One that has ended already is fine."""
    await _tasks(services, params.task_id).end(params.task_id)
    return Empty()


def _tasks(services: Services, task_id: str) -> BackgroundTasks:
    runtime = services.runtime.built
    if runtime is None:
        raise NoSuchTask(task_id)
    return runtime.background


def _info(task: BackgroundTask) -> TaskInfo:
    return TaskInfo(
        task_id=task.id,
        session_id=task.agent_id,
        kind="background_task",
        status=task.status,
        title=titled(task.command),
    )


HANDLERS = {
    "basis/task/list": list_tasks,
    "basis/task/output": output,
    "basis/task/kill": kill,
}
