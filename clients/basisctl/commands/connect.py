"""`basisctl connect`: which provider workspaces use, kept in the person's own config.json. Never touches a key.

Owns the file's place and how it is changed: other settings stay, it is replaced as a whole, and it is private.
"""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.connecting import (
    ENDPOINT_KEY_VARIABLES,
    KEY_VARIABLES,
    LOCAL_SERVERS,
    SCHEMA,
    config_path,
    endpoint_origin,
    read_config,
    require_safe_endpoint,
)
from basisctl.opening import Usage, open_running_daemon
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from typing import Any

    from basis_client.blocking import Connection


def main(args: Namespace) -> int:
    path = config_path(os.environ)
    if args.model is not None and not args.model.strip():
        raise Usage("--model is blank", "name a model, or leave it out")
    before = read_config(path)
    after = _changed(before, args)
    if after.get("base_url") and (args.provider not in LOCAL_SERVERS or os.environ.get("BASIS_API_KEY", "").strip()):
        # At once, and not with the first prompt: a key would go there.
        require_safe_endpoint(str(after["base_url"]))
    elif args.base_url:
        endpoint_origin(args.base_url)
    if args.wire and not after.get("base_url"):
        raise Usage("--wire says what a base URL speaks, and there is none", "name it with --base-url")
    _write(path, after)
    screen = Screen(os.environ)
    screen.line(f"workspaces now use {_described(after)} (in {one_line(path)})")
    dropped = [name for name in ("model", "base_url", "wire") if before.get(name) and name not in after]
    if dropped:
        whose = before.get("base_url") if before.get("provider") == args.provider else before.get("provider")
        screen.line(f"forgotten, because it belonged to {one_line(str(whose))}: {', '.join(dropped)}")
    daemon = open_running_daemon()
    screen.line(_about_the_key(after, os.environ, daemon))
    if daemon is not None:
        screen.line("this holds from the next `basisctl run` on; an open editor follows when it reopens the workspace")
    return exit_codes.OK


def _changed(before: Mapping[str, Any], args: Namespace) -> dict[str, Any]:
    """The settings after connecting. A model or an endpoint of the provider before would not fit the new one, nor the
    wire of an endpoint another; a blank base URL is the way back from an endpoint to the provider's own."""
    after = {"schema": SCHEMA, **before, "provider": args.provider}
    leaves = before.get("provider") != args.provider
    leaves_endpoint = leaves or (args.base_url is not None and args.base_url != before.get("base_url"))
    for name, value, forgets in (
        ("model", args.model, leaves),
        ("base_url", args.base_url, leaves_endpoint),
        ("wire", args.wire, leaves_endpoint),
    ):
        if value:
            after[name] = value
        elif forgets:
            after.pop(name, None)
    return after


def _write(path: str, settings: Mapping[str, Any]) -> None:
    """Replace the file as a whole; only its owner can read it."""
    from basis_client.launch import make_private_directory

    temporary = f"{os.path.realpath(path)}.{os.getpid()}.new"
    try:
        make_private_directory(os.path.dirname(path))
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, os.path.realpath(path))  # a link to a file kept elsewhere stays one
    except OSError as error:
        raise Usage(f"can't write {path}: {error.strerror}", "name another directory in BASIS_CONFIG_DIR") from error


def _described(settings: Mapping[str, Any]) -> str:
    parts = [str(settings["provider"])]
    if settings.get("model"):
        parts.append(f"model {settings['model']}")
    if settings.get("base_url"):
        parts.append(f"at {settings['base_url']}")
    if settings.get("wire"):
        parts.append(f"over {settings['wire']}")
    return one_line(", ".join(parts))


def _about_the_key(settings: Mapping[str, Any], environ: Mapping[str, str], daemon: Connection | None) -> str:
    """Where the key comes from, and how to give one. Never its value."""
    provider, base_url = str(settings["provider"]), settings.get("base_url")
    if base_url is None and provider not in KEY_VARIABLES:
        return f"{provider} needs no key" + (
            "; install it with: basisctl pocket install" if provider == "pocket" else ""
        )
    stored = _stored(provider, base_url, daemon)
    if stored:
        return f"the key is taken from {one_line(stored)}"
    names = ENDPOINT_KEY_VARIABLES if base_url else (KEY_VARIABLES[provider],)
    if base_url and provider in LOCAL_SERVERS:
        names = names[:1]
    for name in names:
        if environ.get(name, "").strip():
            return f"the key is taken from {name}, which is set here"
    if provider in LOCAL_SERVERS:
        return f"{provider} needs no key; if yours does: basisctl auth login {provider} --base-url {base_url}"
    login = f"basisctl auth login {provider}" + (f" --base-url {base_url}" if base_url else "")
    return f"there is no key for it yet\nnext: {login} (or export {names[0]}=…)"


def _stored(provider: str, base_url: str | None, daemon: Connection | None) -> str | None:
    """Where a stored key is, in the daemon's words; nobody is asked when no daemon runs."""
    if daemon is None:
        return None
    for state in map(fields_of, daemon.request("basis/auth/status").get("providers", ())):
        of = state.get("baseUrl")
        is_it = state.get("provider") == provider and not of
        if base_url is not None:
            is_it = bool(of) and endpoint_origin(str(of)) == endpoint_origin(base_url)
        if is_it and state.get("source") == "store":
            return str(state.get("detail", "")) or None
    return None
