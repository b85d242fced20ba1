"""What all agents of one remote provider share: whom it speaks to, as whom, and what was found out about it.

Owns addressing and authorising requests, and what a server has taught about itself. Holds nothing of a conversation:
that is `remote_scope.py`'s.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from basis_daemon.errors import InvalidBaseUrl
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.base import SessionHints
from basis_daemon.runtime.providers.definition import Credentials, CredentialSource, ProviderDefinition, WireName
from basis_daemon.runtime.providers.encoded import Shelf
from basis_daemon.runtime.providers.endpoint import is_loopback, join_url, origin, refuse_plaintext
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.governor import Governor, LaneKey, Place, WaitListener
from basis_daemon.runtime.providers.http import Call, HttpPool
from basis_daemon.runtime.providers.websocket import WebSocket


class Endpoint:
    """One definition, its credentials, its connections, and what is known of the server behind it."""

    def __init__(
        self, definition: ProviderDefinition, credentials: CredentialSource, pool: HttpPool, governor: Governor
    ) -> None:
        self.definition = definition
        self.pool = pool
        self.wire: WireName | None = None if definition.wire == "auto" else definition.wire
        """The wire spoken; `None` while it isn't known yet (PV-2a)."""
        self.models_without_ids: set[str] = set()
        """Models for which the server doesn't know `previous_response_id` (PV-32)."""
        self.shelf = Shelf()
        self.abandoned: list[WebSocket] = []
        """Sockets of scopes that ended without closing them; cut already, to be let go of."""
        self._credentials = credentials
        self._governor = governor

    @asynccontextmanager
    async def placed(
        self, make: Callable[[], Awaitable[Call]], on_wait: WaitListener | None = None
    ) -> AsyncGenerator[tuple[Call, Place]]:
        """A request and its place among those of the same key. One that had to wait is made again: the key may have
        been changed meanwhile."""
        call = await make()
        lane = LaneKey(self.definition.id, call.target.origin, call.target.secrets)
        async with self._governor.place(lane, self.definition.max_concurrent, on_wait) as place:
            yield (await make() if place.waited else call), place

    async def let_go(self) -> None:
        """Drop what ended scopes have left behind."""
        while self.abandoned:
            await self.abandoned.pop().drop()

    async def call(
        self,
        method: str,
        path: str,
        wire: WireName,
        query: Mapping[str, str] | None = None,
        *,
        session: Mapping[str, str] | None = None,
        hints: SessionHints | None = None,
    ) -> Call:
        """Address and authorise a request. The key goes to the definition's own origin and nowhere else (PV-62).

        `session` are the headers of affinity and tracing; those the host adds by `hints` win over all others (RT-36).
        """
        definition = self.definition
        credentials = await self._credentials.credentials()
        secrets = tuple(credentials.secrets())
        self._refuse_unsendable(secrets)
        query = {**definition.query, **(query or {})}
        if definition.auth.kind == "query_param" and credentials.key:
            query[definition.auth.name] = credentials.key.reveal()
        added = (hints or SessionHints()).extra_headers
        target = Target(
            label=definition.label,
            provider=definition.id,
            origin=origin(definition.base_url),
            path=path,
            wire=wire,
            is_local=is_loopback(definition.base_url),
            secrets=secrets,
            hidden=(*definition.hidden, *_hidden(added)),
            key_source=credentials.source,
        )
        headers = {"content-type": "application/json", "accept": "text/event-stream"} if method == "POST" else {}
        headers |= _headers(definition, credentials)
        for more in (session or {}, added):
            headers |= {name.lower(): value for name, value in sorted(more.items())}
        return Call(method, join_url(definition.base_url, path, query), headers, target)

    def _refuse_unsendable(self, secrets: tuple[Secret, ...]) -> None:
        if not all(_can_be_sent(secret) for secret in secrets):
            raise InvalidRequest(
                f"the key for {self.definition.id} holds a line break or a character outside ASCII, which no key has",
                hint="set it again, as its issuer shows it",
            )
        if secrets and not self.definition.allow_plaintext:
            try:
                refuse_plaintext(self.definition.base_url)
            except InvalidBaseUrl as error:
                raise InvalidRequest(str(error), hint=error.hint) from error


def _headers(definition: ProviderDefinition, credentials: Credentials) -> dict[str, str]:
    """Definition, then credential, then the auth header; later ones win (RT-36), and the order is fixed (CV-8)."""
    headers = {name.lower(): value for name, value in sorted(definition.headers.items())}
    headers |= {name.lower(): secret.reveal() for name, secret in sorted(credentials.headers.items(), key=_name)}
    if credentials.key:
        if definition.auth.kind == "bearer_token":
            headers["authorization"] = f"Bearer {credentials.key.reveal()}"
        elif definition.auth.kind == "header":
            headers[definition.auth.name.lower()] = credentials.key.reveal()
    return headers


def _hidden(headers: Mapping[str, str]) -> list[Secret]:
    """What a host's own headers may hold of credentials: their values, and the token behind a scheme."""
    return [Secret(part) for value in headers.values() for part in {value, value.rpartition(" ")[2]}]


def _can_be_sent(secret: Secret) -> bool:
    return secret.reveal().isascii() and secret.reveal().isprintable()


def _name(header: tuple[str, Secret]) -> str:
    return header[0]
