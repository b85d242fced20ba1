"""One agent's conversation over the Responses wire, with the scripted vendor behind it.

Owns building it: state mode, transport and storage are the test's to choose.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import Message, user
from basis_daemon.runtime.providers.base import Provider, ProviderEvent, Request, RequestOptions
from basis_daemon.runtime.providers.definition import ProviderDefinition, StaticCredentials
from basis_daemon.runtime.providers.http import HttpPool
from basis_daemon.runtime.providers.registry import openai_definition
from basis_daemon.runtime.providers.remote import RemoteProvider
from basis_daemon.runtime.providers.streamed import StreamedMessage
from support.model_server import ModelRequest, ModelServer, Scripted


class Talk:
    """An agent that says things and keeps what was said."""

    def __init__(self, provider: RemoteProvider, server: ModelServer, options: RequestOptions) -> None:
        self.provider = provider
        self.server = server
        self.options = options
        self.scope: Provider = provider.scope()
        self.messages: list[Message] = []

    async def say(self, *content: Any, **fields: Any) -> StreamedMessage:
        """Say something and keep it with the answer."""
        self.messages.append(content[0] if isinstance(content[0], Message) else user(*content))
        answer = await self.ask(**fields)
        self.messages.append(answer.message())
        return answer

    async def ask(self, *, seen: list[ProviderEvent] | None = None, **fields: Any) -> StreamedMessage:
        """Ask for an answer to what was said until now, and keep nothing. `seen` has its events also when it fails."""
        streamed = StreamedMessage()
        with anyio.fail_after(5):
            async for event in self.scope.stream(self.request(**fields)):
                streamed.apply(event)
                if seen is not None:
                    seen.append(event)
        assert streamed.complete
        return streamed

    def request(self, **fields: Any) -> Request:
        return replace(Request("m", list(self.messages), options=self.options), **fields)

    def another(self) -> "Talk":
        """Another agent of the same provider."""
        return Talk(self.provider, self.server, self.options)

    @property
    def asked(self) -> list[ModelRequest]:
        return self.server.requests

    @property
    def ids(self) -> list[str | None]:
        """What each request continued."""
        return [request.body.get("previous_response_id") for request in self.asked]

    @property
    def sizes(self) -> list[int]:
        """How many items each request carried."""
        return [len(request.body["input"]) for request in self.asked]


def vendor(server: ModelServer, **fields: Any) -> ProviderDefinition:
    """The vendor's definition at the scripted server's address."""
    return replace(openai_definition(), base_url=server.base_url, **fields)


@asynccontextmanager
async def responses_talk(
    *script: Scripted,
    options: RequestOptions | None = None,
    definition: dict[str, Any] | None = None,
    **server_options: Any,
) -> AsyncGenerator[Talk]:
    pool = HttpPool()
    async with ModelServer(*script, **server_options) as server:
        credentials = StaticCredentials(Secret("sk-1234567890"))
        talk = Talk(
            RemoteProvider(vendor(server, **(definition or {})), credentials, pool), server, options or RequestOptions()
        )
        try:
            yield talk
        finally:
            await talk.scope.aclose()
            await talk.provider.aclose()
            await pool.aclose()
