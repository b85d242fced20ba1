"""The method table joined with its handlers: from a method's name to typed params to a call.

Owns validation of params. A handler is an async function of the daemon's services, the client and its params; what it
returns is the result, or a `Reply` when something has to happen right behind the answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from basis_daemon.server.client import Client
from basis_daemon.server.error_map import InvalidParams, MethodNotFound, invalid_params
from basis_protocol.base import WireModel
from basis_protocol.methods import METHODS, Direction, Method

Services = TypeVar("Services")


@dataclass(frozen=True, slots=True)
class Reply:
    """A result, and what to do once it is on its way: events of an attach follow its answer, never precede it."""

    result: WireModel
    then: Callable[[], None]


Handler = Callable[[Services, Client, Any], Awaitable[WireModel | Reply]]
InstantHandler = Callable[[Services, Client, Any], WireModel]


class Route(Generic[Services]):
    """One method that has a handler."""

    __slots__ = ("_decoder", "_params", "handler", "instant")

    def __init__(
        self,
        method: Method,
        handler: Handler[Services] | None,
        instant: InstantHandler[Services] | None,
    ) -> None:
        self.handler = handler
        self.instant = instant
        self._params = method.params
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def decode(self, params: msgspec.Raw) -> WireModel:
        """Typed params; absent or null ones are `{}`. Raises `InvalidParams` naming the field."""
        if self._decoder is None:
            # Built at first use: all of them together would be a noticeable part of the daemon's start.
            self._decoder = msgspec.json.Decoder(self._params)
        raw = bytes(params)
        try:
            return self._decoder.decode(b"{}" if raw in (b"", b"null") else raw)
        except msgspec.ValidationError as error:
            raise invalid_params(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InvalidParams("params: not valid JSON in UTF-8", field="params") from None
        except RecursionError:
            raise InvalidParams("params: nested too deeply", field="params") from None


class Router(Generic[Services]):
    """Every `basis/*` request this build answers. `instant` handlers run in the reader itself and must not wait."""

    def __init__(
        self,
        services: Services,
        *,
        handlers: Mapping[str, Handler[Services]],
        instant: Mapping[str, InstantHandler[Services]],
    ) -> None:
        self.services = services
        self._routes = {
            name: Route(METHODS[name], handlers.get(name), instant.get(name)) for name in (*handlers, *instant)
        }

    @property
    def features(self) -> list[str]:
        """Names of the methods that are served, as the handshake lists them."""
        return sorted(self._routes)

    def route(self, method: str) -> Route[Services]:
        """Raises `MethodNotFound`, saying whether the method is unknown or has no handler yet."""
        route = self._routes.get(method)
        if route is not None:
            return route
        known = METHODS.get(method)
        if known is not None and known.direction is Direction.CLIENT_TO_DAEMON:
            raise MethodNotFound(f"this daemon does not serve {method} yet")
        raise MethodNotFound(f"there is no method {method!r}")
