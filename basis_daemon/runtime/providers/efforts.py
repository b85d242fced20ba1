"""Which efforts each model takes (2.9): what the vendors document, a line for each family of models.

Owns the tables and how a model finds its line. How an effort is written down is the wire's; a definition may bring a
table of its own, which then stands in place of these (PV-44).
"""

import re
from dataclasses import dataclass

from basis_daemon.runtime.providers.base import Effort, Request
from basis_daemon.runtime.providers.errors import InvalidRequest

_DATED = re.compile(r"-\d{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortRule:
    """What a family of models takes. `models` are ids, dated ones (`-YYYYMMDD`) included; `x*` is all that begin so."""

    models: tuple[str, ...]
    levels: tuple[Effort, ...]
    is_adaptive: bool = False
    """Whether the model itself decides when and how long to think, once it is asked to."""
    hides_thinking: bool = False
    """Whether reasoning comes sealed only, without a word, unless its words are asked for."""
    binds_thinking: bool = False
    """Whether sealed reasoning holds only behind exactly the conversation it came from."""

    def means(self, model: str) -> bool:
        return any(_is_meant(name, model) for name in self.models)


def _is_meant(name: str, model: str) -> bool:
    if name.endswith("*"):
        return model.startswith(name[:-1])
    return model.startswith(name) and (model == name or _DATED.fullmatch(model, len(name)) is not None)


_UP_TO_HIGH: tuple[Effort, ...] = ("low", "medium", "high")
_ALL: tuple[Effort, ...] = (*_UP_TO_HIGH, "xhigh", "max")

ANTHROPIC_EFFORTS = (
    EffortRule(models=("claude-opus-4-5",), levels=_UP_TO_HIGH),
    EffortRule(
        models=("claude-mythos-preview", "claude-opus-4-6", "claude-sonnet-4-6"),
        levels=(*_UP_TO_HIGH, "max"),
        is_adaptive=True,
    ),
    EffortRule(
        models=(
            "claude-opus-4-7",
            "claude-opus-4-8",
            "claude-opus-5",
            "claude-sonnet-5",
            "claude-fable-5",
            "claude-mythos-5",
        ),
        levels=_ALL,
        is_adaptive=True,
        hides_thinking=True,
    ),
    EffortRule(
        models=(
            "claude-fable-5-1",
            "claude-fable-5-2",
            "claude-mythos-5-1",
            "claude-mythos-5-2",
            "claude-opus-5-5",
            "claude-sonnet-5-5",
            "claude-haiku-5-5",
        ),
        levels=_ALL,
        is_adaptive=True,
        hides_thinking=True,
        binds_thinking=True,
    ),
)
GEMINI_EFFORTS = (EffortRule(models=("gemini-3*", "gemini-4*"), levels=_UP_TO_HIGH),)


def rule_for(model: str, rules: tuple[EffortRule, ...]) -> EffortRule | None:
    """The first line that means `model`; `None` for one that takes no effort."""
    return next((rule for rule in rules if rule.means(model)), None)


def require_effort(request: Request, rule: EffortRule | None) -> None:
    """Raise `InvalidRequest` if the model doesn't take the effort asked for: it is not rounded (PR-9, D-33)."""
    effort = request.effort
    if effort is None or (rule is not None and effort in rule.levels):
        return
    known = f"choose {', '.join(rule.levels)}, or leave it unset" if rule else "leave it unset, or choose another model"
    raise InvalidRequest(f"the model {request.model} does not take the effort {effort}", hint=known)
