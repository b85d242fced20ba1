"""Which reasoning efforts a person is offered for a model. Offering is no promise: a request that asks for an effort
its model doesn't take fails and is not rounded (PR-9).

Owns what is known of it by provider; the vendors' tables are the runtime's.
"""

from basis_daemon.runtime.providers.base import Effort
from basis_daemon.runtime.providers.efforts import ANTHROPIC_EFFORTS, GEMINI_EFFORTS, rule_for
from basis_daemon.runtime.providers.registry import PRESETS
from basis_daemon.workspace.provider_names import EMBEDDED

TABLES = {"anthropic": ANTHROPIC_EFFORTS, "gemini": GEMINI_EFFORTS}


def efforts_of(provider: str, model: str) -> tuple[Effort, ...] | None:
    """The efforts that `model` of `provider` takes, weakest first; `None` when that is not known."""
    if provider in EMBEDDED:
        return ()
    if provider in TABLES:
        rule = rule_for(model, TABLES[provider])
        return rule.levels if rule else ()
    preset = PRESETS.get(provider)
    return () if preset is not None and not preset().capabilities.reasoning_effort else None
