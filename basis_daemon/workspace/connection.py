"""A workspace's way to a model: its provider, and which model of it is used (workspace.md 3 PR-8, runtime.md 1.5).

Owns model resolution. A configured id is taken as it is, without a question to anybody; otherwise the newest model the
provider lists is, asked for when it is first needed and never while a workspace opens.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from basis_daemon.errors import BasisError, ProviderSetupError
from basis_daemon.runtime.providers.base import Limits, ModelInfo, Provider, ProviderEvent, Request
from basis_daemon.runtime.providers.definition import CredentialSource
from basis_daemon.runtime.providers.selection import LISTING_TIMEOUT_S, newest, unlisted
from basis_daemon.workspace.model_catalogue import ModelCatalogue, Reachable
from basis_daemon.workspace.provider_names import EMBEDDED


class UnavailableProvider:
    """Stands where no provider could be set up: a conversation can be read, and a turn fails with the reason."""

    def __init__(self, id: str, error: ProviderSetupError) -> None:
        self._id = id
        self._error = error

    @property
    def id(self) -> str:
        return self._id

    @property
    def label(self) -> str:
        return f"{self._id} (not set up)" if self._id else "not set up"

    @property
    def limits(self) -> Limits:
        return Limits()

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        raise self._error.with_traceback(None)
        yield  # what makes this a stream

    async def list_models(self) -> list[ModelInfo]:
        raise self._error.with_traceback(None)

    def scope(self) -> "UnavailableProvider":
        return self

    async def aclose(self) -> None:
        """Nothing was opened."""


class Connection:
    """One provider and the choice of a model among its. Safe for concurrent use on one loop."""

    def __init__(
        self,
        provider: Provider,
        *,
        model: str | None,
        by_default: bool = False,
        error: ProviderSetupError | None = None,
        credentials: CredentialSource | None = None,
        catalogue: ModelCatalogue | None = None,
        billed_as: str | None = None,
    ) -> None:
        """`model` is the id somebody asked for. `error` is why `provider` can't be used, if it can't. `credentials` is
        where its key is from; `catalogue` is shared with others who list models; `billed_as` is whose prices hold, if
        not the provider's of that id."""
        self.provider = provider
        self.reachable = Reachable(provider, credentials, billed_as)
        self._catalogue = catalogue or ModelCatalogue()
        self.by_default = by_default
        self.error = error
        self.failure: ProviderSetupError | None = None
        """Why the last attempt to find a model failed; `None` once one succeeded."""
        self._lock = asyncio.Lock()
        # Model ids of files and flags are not the embedded providers': they have one model each.
        named = model if provider.id not in EMBEDDED else None
        self._model = ModelInfo(named, provider.id) if named else None

    @property
    def model(self) -> ModelInfo | None:
        """The model in use, with all that is known of it without asking anybody (RT-29)."""
        return self._model and self.described(self._model.id)

    def described(self, id: str) -> ModelInfo:
        """What is known of one of the provider's models, whether or not it has ever told of it."""
        return next((model for model in self.known_models if model.id == id), ModelInfo(id, self.provider.id))

    @property
    def known_models(self) -> tuple[ModelInfo, ...]:
        """The provider's models, as far as it has been asked for them by now. Asks nobody."""
        return self._catalogue.known(self.provider)

    @property
    def is_local(self) -> bool:
        """Whether listing models needs no network."""
        return self.provider.id in EMBEDDED

    async def resolve(self) -> ModelInfo:
        """The model to use, asking the provider if nobody named one. The first answer stands for good.

        Raises `ProviderSetupError` kinds; the next call then tries again.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        async with self._lock:
            if self._model is None:
                try:
                    self._model = newest(await self._listed(), self.provider)
                except ProviderSetupError as error:
                    self.failure = error
                    raise
                self.failure = None
        return self._model

    async def _listed(self) -> list[ModelInfo]:
        try:
            async with asyncio.timeout(LISTING_TIMEOUT_S):
                return await self._catalogue.models(self.reachable)
        except TimeoutError:
            raise unlisted(self.provider, f"it took longer than {LISTING_TIMEOUT_S:g} s") from None
        except BasisError as error:
            raise unlisted(self.provider, str(error)) from error


class AwaitingModel:
    """A provider whose model was not known when a session was made: a request that names none is given the one found.

    The turn has looked for one before it asks (`RunSurroundings.begin`). If there is none it fails with the reason,
    without putting the question to the provider a second time.
    """

    def __init__(self, inner: Provider, connection: Connection) -> None:
        self._inner = inner
        self._connection = connection

    @property
    def inner(self) -> Provider:
        """Whatever else the provider can do, it does itself (PV-59)."""
        return self._inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def label(self) -> str:
        return self._inner.label

    @property
    def limits(self) -> Limits:
        return self._inner.limits

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        return self._inner.stream(request) if request.model else self._resolved(request)

    async def list_models(self) -> list[ModelInfo]:
        return await self._inner.list_models()

    def scope(self) -> "AwaitingModel":
        return AwaitingModel(self._inner.scope(), self._connection)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _resolved(self, request: Request) -> AsyncIterator[ProviderEvent]:
        if self._connection.failure is not None:
            raise self._connection.failure.with_traceback(None)
        model = await self._connection.resolve()
        async for event in self._inner.stream(replace(request, model=model.id)):
            yield event
