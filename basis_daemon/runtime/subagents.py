"""Making the sessions of subagents: what a subagent inherits from the agent it works for (CO-1, SP-21).

Owns the inheritance. Everything that guards the parent guards the subagent: policy, audience, authorizer, environment,
roster, and what was answered for the session. What happens while it works is `agent_operations.py`'s.
"""

from collections.abc import Callable
from dataclasses import replace

from basis_daemon.errors import ProviderNotFound
from basis_daemon.runtime.delegation import SubagentTemplate
from basis_daemon.runtime.providers.base import ModelInfo, Provider
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.sessions import Session, SessionOptions

SUFFIX = (
    "You work on a task that another agent has handed to you, and nobody reads along. Do that task and nothing else, "
    "then end with one short message that gives the result and whatever the other agent must know to use it."
)
"""Added to the system prompt of a subagent (CO-1)."""

TASK_TOOL = "task"
"""Hidden from subagents: they do their work themselves."""


class SessionNursery:
    """`Nursery` of one session."""

    def __init__(
        self,
        parent: Session,
        *,
        create: Callable[[SessionOptions, SessionAnswers], Session],
        provider: Callable[[str], Provider | None],
        forget: Callable[[str], None],
    ) -> None:
        self._parent = parent
        self._create = create
        self._provider = provider
        self._forget = forget

    @property
    def depth(self) -> int:
        return self._parent.options.depth

    @property
    def max_depth(self) -> int:
        return self._parent.options.max_delegation_depth

    @property
    def keeps_subagents(self) -> bool:
        return self._parent.options.keep_subagents

    def make(self, template: SubagentTemplate | None, name: str) -> Session:
        """Raises `ProviderNotFound`. Writes nothing."""
        parent, options = self._parent, self._parent.options
        chosen = template or SubagentTemplate(agent_id=parent.agent.id)
        provider, model = self._model(chosen)
        system = chosen.system if chosen.system is not None else options.system
        return self._create(
            replace(
                options,
                agent_id=None,
                name=name,
                provider=provider,
                model=model,
                effort=parent.effort,
                system=f"{system}\n\n{SUFFIX}" if system else SUFFIX,
                roster=_narrowed(options.roster, chosen.tools),
                parent=parent.agent.id,
                depth=options.depth + 1,
            ),
            parent.answers,
        )

    def remove(self, agent_id: str) -> None:
        self._forget(agent_id)

    def _model(self, template: SubagentTemplate) -> tuple[Provider, ModelInfo]:
        """The template's model, else the one the parent has now. Raises `ProviderNotFound`."""
        options, record = self._parent.options, self._parent.agent.record
        provider = options.provider
        if template.provider not in (None, provider.id):
            found = self._provider(template.provider or "")
            if found is None:
                raise ProviderNotFound(f"there is no provider {template.provider!r} for a subagent")
            provider = found
        model = template.model or record.model
        return provider, options.model if model == options.model.id else ModelInfo(model, provider.id)


def _narrowed(roster: Callable[[str], bool], allowed: Callable[[str], bool] | None) -> Callable[[str], bool]:
    """A subagent is never offered what its parent is denied, whatever its template says (TR-5)."""
    return lambda name: name != TASK_TOOL and roster(name) and (allowed is None or allowed(name))
