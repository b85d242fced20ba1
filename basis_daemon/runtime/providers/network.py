"""How the way to a provider is found: which proxy leads there and whose certificates count.

Owns what the usual variables mean: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`,
`SSL_CERT_DIR`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`. Opens no connection and reads no file.
"""

import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from basis_daemon.errors import InvalidBaseUrl
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.endpoint import is_loopback, origin

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one server. A proxy's URL may hold a password and is never shown."""

    proxy: Secret | None = None
    ca: str | None = None
    """A file or a directory of certificates that count instead of the system's."""
    ca_variable: str | None = None
    """The variable that named it, for an error message."""

    @property
    def via(self) -> str | None:
        """The proxy, fit to be shown."""
        if self.proxy is None:
            return None
        try:
            parts = urlsplit(self.proxy.reveal())
            return origin(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        except (ValueError, InvalidBaseUrl, KeyError):
            return "its proxy"


DIRECT = Route()


@dataclass(frozen=True, slots=True)
class Network:
    """What was said about the network. Values are compared and hashed: equal ones share connections."""

    proxies: tuple[tuple[str, Secret], ...] = ()
    """By the scheme they are for: `http`, `https`, `all`."""
    direct: tuple[str, ...] = ()
    """Hosts, domains and subnets that are reached without a proxy; `*` is all."""
    ca: str | None = None
    ca_variable: str | None = None

    @classmethod
    def of(cls, *environments: Mapping[str, str]) -> Self:
        """What the first environment says that says anything; proxies and certificates are looked for on their own.

        So a daemon that was started at login, with next to nothing in its environment, reaches the network as the
        shell or editor does that opens a workspace. A variable in small letters goes first, as everywhere.
        """
        proxies = _first_settings(environments, PROXY_VARIABLES)
        authorities = _first_settings(environments, CA_VARIABLES)
        ca_variable = next((name for name in CA_VARIABLES if name in authorities), None)
        return cls(
            proxies=tuple(
                (scheme, Secret(value if "://" in value else f"http://{value}"))
                for scheme in ("http", "https", "all")
                if (value := proxies.get(f"{scheme.upper()}_PROXY"))
            ),
            direct=tuple(filter(None, (entry.strip().lower() for entry in proxies.get("NO_PROXY", "").split(",")))),
            ca=authorities[ca_variable] if ca_variable else None,
            ca_variable=ca_variable,
        )

    def route(self, url: str) -> Route:
        """The way to `url`. A proxy is for other machines, whatever `NO_PROXY` forgets to say."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        proxies = dict(self.proxies)
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if proxy is None or is_loopback(url) or any(_covers(entry, host, parts.port) for entry in self.direct):
            return Route(None, self.ca, self.ca_variable)
        return Route(proxy, self.ca, self.ca_variable)


def process_network() -> Network:
    """What this process's own environment says."""
    return Network.of(os.environ)


def _first_settings(environments: Iterable[Mapping[str, str]], names: tuple[str, ...]) -> dict[str, str]:
    """What the first environment that sets any of `names` sets, by their names in capitals."""
    for environment in environments:
        found = {name: (environment.get(name.lower()) or environment.get(name) or "").strip() for name in names}
        if any(found.values()):
            return {name: value for name, value in found.items() if value}
    return {}


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Whether an entry of `NO_PROXY` means `host`: itself, a domain it lies in, or a subnet its address lies in."""
    if entry == "*":
        return True
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit() and ":" not in name:
        if port != int(number):
            return False
        entry = name
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    domain = entry.removeprefix("*").lstrip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
