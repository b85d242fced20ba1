"""Whose a key is, and where it is looked for: the store, what a client sent, this process's own environment.

Owns the order of sources, and that it is gone through for every request: a key that is changed counts from the next one
on (RT-35). Every key found says where it is from. Where keys are stored is `credential_store.py`'s; that one is sent to
nobody but its owner, the provider's (PV-62).
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from basis_daemon.errors import MissingCredential
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.definition import Credentials
from basis_daemon.runtime.providers.endpoint import origin
from basis_daemon.workspace.credential_store import CredentialStore
from basis_daemon.workspace.provider_names import (
    COMPATIBLE_KEY_VARIABLES,
    CREDENTIAL_VARIABLES,
    KEY_VARIABLES,
    LOCAL_SERVERS,
    variable,
)

SourceKind = Literal["host", "store", "workspace_environment", "daemon_environment"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Whom a key belongs to: a vendor, by its provider's id, or one endpoint, by its origin. A key of one is never
    looked at for another (PR-2)."""

    name: str
    variables: tuple[str, ...]

    def missing(self, problem: str) -> MissingCredential:
        """What to raise when there is no key. `problem` says what it is wanted for."""
        return MissingCredential(
            f"{problem}, but {' or '.join(self.variables)} is not set and no key is stored for it",
            hint=f"run `basisctl auth login{self._how()}`, or set {self.variables[0]} where you start the client",
            details={"provider": self.name, "variable": self.variables[0]},
        )

    def _how(self) -> str:
        return f" {self.name}" if self.name in KEY_VARIABLES else f" --base-url {self.name}"


def vendor_slot(provider: str) -> Slot:
    """The slot of a keyed provider's own API."""
    return Slot(provider, (KEY_VARIABLES[provider],))


def endpoint_slot(provider: str, base_url: str) -> Slot:
    """The slot of a base URL. Raises `InvalidBaseUrl`.

    A model server on one's own machines has nothing to do with an OpenAI key that happens to be set.
    """
    names = COMPATIBLE_KEY_VARIABLES[:1] if provider in LOCAL_SERVERS else COMPATIBLE_KEY_VARIABLES
    return Slot(origin(base_url), names)


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key and where it was found, in a person's words."""

    key: Secret
    kind: SourceKind
    source: str


@dataclass(frozen=True, slots=True)
class KeySource:
    """The key of one slot, looked up for every request. Equal for equal sources, so that those share a provider."""

    slot: Slot
    store: CredentialStore | None = None
    named: tuple[FoundKey, ...] = ()
    """Keys of environments, which stay what they are; in order."""
    is_required: bool = True

    def every(self) -> Iterator[FoundKey]:
        """All keys there are for the slot, the one that counts first. Blocking. Raises what the store does."""
        stored = self.store.find(self.slot.name) if self.store else None
        if stored is not None:
            yield FoundKey(stored.key, "store", stored.source)
        yield from self.named

    def find(self) -> FoundKey | None:
        """The key that counts. Blocking."""
        return next(self.every(), None)

    async def credentials(self) -> Credentials:
        """See `CredentialSource`. Raises `MissingCredential`, and what the store does."""
        found = await asyncio.to_thread(self.find) if self.store else next(iter(self.named), None)
        if found is not None:
            return Credentials(key=found.key, source=found.source)
        if self.is_required:
            raise self.slot.missing(f"a key for {self.slot.name} is wanted")
        return Credentials()


@dataclass(frozen=True, slots=True)
class Keychain:
    """Where the keys of one workspace may be found. `sender` is who sent `environment`; `fallback` is the environment
    of the daemon itself, which comes last."""

    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    sender: str | None = None
    store: CredentialStore | None = None
    fallback: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def source(self, slot: Slot, *, is_required: bool = True) -> KeySource:
        """The source of one slot's key, narrowed to what concerns it."""
        return KeySource(slot, self.store, tuple(self._named(slot)), is_required)

    def _named(self, slot: Slot) -> Iterator[FoundKey]:
        found = variable(self.environment, *slot.variables)
        if found is not None:
            by = f"{found[0]} sent by {self.sender}" if self.sender else found[0]
            yield FoundKey(Secret(found[1]), "workspace_environment", by)
        found = variable(self.fallback, *slot.variables)
        if found is not None:
            yield FoundKey(Secret(found[1]), "daemon_environment", f"{found[0]} in the daemon's own environment")


def credentials_of(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment may be a key: all that is kept of a daemon's own."""
    return {name: environment[name] for name in sorted(CREDENTIAL_VARIABLES) if name in environment}
