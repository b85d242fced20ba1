"""Base URLs: one spelling, how paths are joined to them, and which of them a key may be sent to.

Owns PR-3, RT-34 and the plaintext rule (PV-63). Opens no connection.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlencode, urlsplit, urlunsplit

from basis_daemon.errors import InvalidBaseUrl

VERSIONED_ROOTS = ("/v1", "/v1beta", "/backend-api/codex")
"""Ends of a base URL that already hold what paths begin with, `v1/` or `v1beta/` (RT-34)."""


def normalise_base_url(url: str) -> str:
    """`url` trimmed, without a trailing `/v1`, ending in exactly one slash; path prefixes and a query stay (PR-3).

    Raises `InvalidBaseUrl`, which doesn't repeat the URL: it may hold a credential.
    """
    parts = _split(url.strip())
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path + "/", parts.query, ""))


def join_url(base_url: str, path: str, query: Mapping[str, str] | None = None) -> str:
    """The URL of `path` (`v1/…`) below `base_url`; their queries and `query`, which is encoded, are one (RT-34)."""
    parts = _split(base_url)
    root = parts.path.rstrip("/")
    path, _, own = path.partition("?")
    if root.endswith(VERSIONED_ROOTS):
        path = path.removeprefix("v1/").removeprefix("v1beta/")
    added = urlencode(sorted(query.items())) if query else ""
    joined = "&".join(filter(None, (parts.query, own, added)))
    return urlunsplit((parts.scheme, parts.netloc, f"{root}/{path}", joined, ""))


def origin(url: str) -> str:
    """Scheme, host and port: what a credential is bound to (PV-62), and all of a URL that messages repeat."""
    parts = _split(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def is_loopback(url: str) -> bool:
    """Whether `url` can only lead to this machine."""
    host = _split(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_plaintext(base_url: str) -> None:
    """Raise `InvalidBaseUrl` if a key sent to `base_url` could be read on the way (PV-63)."""
    if _split(base_url).scheme == "http" and not is_loopback(base_url):
        raise InvalidBaseUrl(
            f"a key would be sent unencrypted to {origin(base_url)}",
            hint="use https://, or configure no key for a server that wants none",
        )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not any(char.isspace() for char in url)
        usable = usable and parts.port != 0
    except ValueError:
        usable, parts = False, SplitResult("", "", "", "", "")
    if not usable:
        raise InvalidBaseUrl(
            "the base URL is not an http:// or https:// URL with a host",
            hint="write it like https://gateway.example/v1",
        )
    if "@" in parts.netloc:
        raise InvalidBaseUrl(
            "the base URL holds a user name or password", hint="leave it out and configure it as the key"
        )
    return parts
