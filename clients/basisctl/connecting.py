"""What basisctl knows by itself about providers: their names, their keys' variables, and the person's own config.json.

Owns where that file is and how it is read, and which endpoint no key may travel to. It is changed by
`commands/connect.py`; what a workspace really uses is the daemon's to decide.
"""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl.opening import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SCHEMA = 1

KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
ENDPOINT_KEY_VARIABLES = ("BASIS_API_KEY", "OPENAI_API_KEY")
"""The only variables whose key is ever sent to a base URL, in this order (PR-2)."""
LOCAL_SERVERS = ("ollama", "lmstudio")
"""Servers that want no key."""


def config_path(environ: Mapping[str, str]) -> str:
    """In `$BASIS_CONFIG_DIR`, else `$XDG_CONFIG_HOME/basis`, else `$HOME/.config/basis`. Raises `Usage`."""
    for name, below in (("BASIS_CONFIG_DIR", ""), ("XDG_CONFIG_HOME", "basis"), ("HOME", ".config/basis")):
        value = environ.get(name, "")
        if os.path.isabs(value):
            return os.path.join(value, below, "config.json") if below else os.path.join(value, "config.json")
    raise Usage("there is no home directory", "name a directory in BASIS_CONFIG_DIR")


def read_config(path: str) -> dict[str, Any]:
    """What the file says so far. Raises `Usage` for one that can't be understood: it is not ours to throw away."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Usage(f"can't read {path}: {type(error).__name__}", "mend it or move it away") from error
    settings = fields_of(found)
    if not settings or settings.get("schema", SCHEMA) != SCHEMA:
        raise Usage(f"{path} is not a configuration of schema {SCHEMA}", "mend it or move it away")
    return settings


def configured_provider(environ: Mapping[str, str]) -> str | None:
    """The keyed provider the person has chosen, if they have."""
    provider = str(read_config(config_path(environ)).get("provider", "")).strip().lower()
    return provider if provider in KEY_VARIABLES else None


def configured_endpoint(environ: Mapping[str, str]) -> dict[str, str]:
    """`provider`, `base_url` and `wire` of the endpoint the person has chosen; empty when they have chosen none."""
    settings = read_config(config_path(environ))
    if not settings.get("base_url"):
        return {}
    known = {name: str(settings[name]).strip() for name in ("provider", "base_url", "wire") if settings.get(name)}
    return {"provider": "openai", **known}


def endpoint_origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a base URL: what a key is bound to. Raises `Usage` for one the daemon would refuse."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url.strip())
        port = {"http": 80, "https": 443}[parts.scheme] if parts.port is None else parts.port
    except (ValueError, KeyError):
        parts, port = urlsplit(""), 0
    if not parts.hostname or not port or any(char.isspace() for char in url.strip()):
        raise Usage("--base-url is not an http:// or https:// address with a host", "write it like https://host/v1")
    if "@" in parts.netloc:
        raise Usage("--base-url holds a user name or password", "give the key with: basisctl auth login --base-url URL")
    return parts.scheme, parts.hostname, port


def require_safe_endpoint(url: str) -> None:
    """Raises `Usage` for a base URL that is none, or to which a key would travel in the clear (PV-63)."""
    scheme, host, _ = endpoint_origin(url)
    if scheme == "http" and not is_this_machine(host):
        raise Usage(
            f"a key would be sent unencrypted to {host}",
            f"use https://, or name {' or '.join(LOCAL_SERVERS)} for a server that wants no key",
        )


def is_this_machine(host: str) -> bool:
    """Whether a host name can only mean this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
