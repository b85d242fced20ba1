"""What background commands came to, told to the agents that started them (3.4 step 7, CO-17).

Owns how a result reads in a conversation. Which results are outstanding is `background.py`'s.
"""

from collections.abc import Sequence

from basis_daemon.runtime.background import BackgroundTask, BackgroundTasks
from basis_daemon.runtime.envelopes import envelope
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.turn import Delivery

TAG = "background-results"


class BackgroundInbox:
    """An `Inbox` of ended background tasks. Not kept across a restart: the tasks have ended with the runtime."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks

    def drain(self, agent_id: str) -> Sequence[Delivery]:
        """At most one delivery with a line for each task."""
        tasks = self._tasks.take_results(agent_id)
        if not tasks:
            return []
        text = envelope(TAG, "\n".join(map(result_line, tasks)))
        return [Delivery("canonical_context", user(text), ",".join(task.id for task in tasks))]

    def acknowledge(self, agent_id: str, deliveries: Sequence[Delivery]) -> None:
        """Nothing is left to do: what was taken is not handed out again."""

    def put_back(self, agent_id: str, deliveries: Sequence[Delivery]) -> None:
        ids = [task_id for delivery in deliveries for task_id in delivery.key.split(",")]
        self._tasks.put_back(agent_id, ids)


def result_line(task: BackgroundTask) -> str:
    """One task on one line, quotes and backslashes escaped. Where its output is longer, it says where all of it is."""
    fields = {"command": task.command, "outcome": task.outcome, "output": task.output_preview}
    if task.result_id is not None:
        fields["all"] = f"{task.agent_id}/{task.result_id}"
    told = " ".join(f'{name}="{_quoted(value or "")}"' for name, value in fields.items())
    return f"[bg:{task.id}] status={task.status} {told}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
