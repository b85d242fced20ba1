"""The providers a person may name, and the variables their keys are in.

Owns PR-6 and PR-7. Which provider is taken is decided in `providers.py`.
"""

from collections.abc import Mapping
from typing import Final

from basis_daemon.errors import UnknownProvider

KEY_VARIABLES: Final[Mapping[str, str]] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
"""Where each keyed provider's key is looked for, in the order in which a found key decides (PR-5)."""

COMPATIBLE_KEY_VARIABLES = ("BASIS_API_KEY", "OPENAI_API_KEY")
"""The only variables whose value is ever sent to a base URL (PR-2)."""

BASE_URL_VARIABLES = ("BASIS_BASE_URL", "OPENAI_BASE_URL")

CREDENTIAL_VARIABLES = frozenset((*KEY_VARIABLES.values(), *COMPATIBLE_KEY_VARIABLES))
"""Variables commands are never started with."""

LOCAL_SERVERS = ("ollama", "lmstudio")
"""Servers on this machine that want no key. Used only when named: a running one is never taken by itself."""

POCKET = "pocket"
REHEARSAL = "rehearsal"
EMBEDDED = (POCKET, REHEARSAL)
"""Providers that come with the product and need neither a key nor a server."""

NAMES = (*KEY_VARIABLES, *LOCAL_SERVERS, *EMBEDDED)
_ALIASES = {"lm-studio": "lmstudio"}


def provider_id(name: str) -> str:
    """The id of the provider called `name`, in any case and with spaces around (PR-7). Raises `UnknownProvider`."""
    wanted = name.strip().lower()
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in NAMES:
        raise UnknownProvider(f"there is no provider {name.strip()!r}", hint=f"known are {', '.join(NAMES)}")
    return wanted


def variable(environment: Mapping[str, str], *names: str) -> tuple[str, str] | None:
    """The first of `names` that is set to something, with its value; blank counts as unset (PR-6)."""
    for name in names:
        value = environment.get(name, "").strip()
        if value:
            return name, value
    return None
