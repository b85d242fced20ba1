"""`basisctl connect`: which provider workspaces use, kept in the person's own config.json. Never touches a key.

Owns the file's place and how it is changed: other settings stay, it is replaced as a whole, and it is private.
"""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.opening import Usage, open_running_daemon
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from typing import Any

SCHEMA = 1

KEY_VARIABLES = {
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
}
ENDPOINT_KEY_VARIABLES = ("BASIS_API_KEY", "OPENAI_API_KEY")
"""The only keys that are ever sent to a base URL, in this order (PR-2)."""


def main(args: Namespace) -> int:
    path = os.path.join(_config_dir(os.environ), "config.json")
    if args.base_url is not None and not args.base_url.startswith(("http://", "https://")):
        raise Usage(f"--base-url {args.base_url!r} begins with neither http:// nor https://")
    if args.model is not None and not args.model.strip():
        raise Usage("--model is blank", "name a model, or leave it out")
    before = _read(path)
    after = _changed(before, args)
    _write(path, after)
    screen = Screen(os.environ)
    screen.line(f"workspaces now use {_described(after)} (in {one_line(path)})")
    dropped = [name for name in ("model", "base_url") if before.get(name) and name not in after]
    if dropped:
        screen.line(f"forgotten, because it belonged to {before.get('provider')}: {', '.join(dropped)}")
    screen.line(_about_the_key(after, os.environ))
    if open_running_daemon() is not None:
        screen.line("this holds from the next `basisctl run` on; an open editor follows when it reopens the workspace")
    return exit_codes.OK


def _config_dir(environ: Mapping[str, str]) -> str:
    """`$BASIS_CONFIG_DIR`, else `$XDG_CONFIG_HOME/basis`, else `$HOME/.config/basis`. Raises `Usage`."""
    for name, below in (("BASIS_CONFIG_DIR", ""), ("XDG_CONFIG_HOME", "basis"), ("HOME", ".config/basis")):
        value = environ.get(name, "")
        if os.path.isabs(value):
            return os.path.join(value, below) if below else value
    raise Usage("there is no home directory", "name a directory in BASIS_CONFIG_DIR")


def _read(path: str) -> dict[str, Any]:
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


def _changed(before: Mapping[str, Any], args: Namespace) -> dict[str, Any]:
    """The settings after connecting. A model or an endpoint of the provider before would not fit the new one."""
    after = {"schema": SCHEMA, **before, "provider": args.provider}
    for name, value in (("model", args.model), ("base_url", args.base_url)):
        if value is not None:
            after[name] = value
        elif before.get("provider") != args.provider:
            after.pop(name, None)
    return after


def _write(path: str, settings: Mapping[str, Any]) -> None:
    """Replace the file as a whole; only its owner can read it."""
    from basis_client.launch import make_private_directory

    temporary = f"{path}.{os.getpid()}.new"
    try:
        make_private_directory(os.path.dirname(path))
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise Usage(f"can't write {path}: {error.strerror}", "name another directory in BASIS_CONFIG_DIR") from error


def _described(settings: Mapping[str, Any]) -> str:
    parts = [str(settings["provider"])]
    if settings.get("model"):
        parts.append(f"model {settings['model']}")
    if settings.get("base_url"):
        parts.append(f"at {settings['base_url']}")
    return one_line(", ".join(parts))


def _about_the_key(settings: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Which variable holds the key, and whether it is set where we stand. Never its value."""
    provider = str(settings["provider"])
    names = ENDPOINT_KEY_VARIABLES if settings.get("base_url") else KEY_VARIABLES.get(provider, ())
    if not names:
        return f"{provider} needs no key" + (
            "; install it with: basisctl pocket install" if provider == "pocket" else ""
        )
    for name in names:
        if environ.get(name, "").strip():
            return f"the key is taken from {name}, which is set here"
    return f"the key is taken from {' or '.join(names)}, which is not set here\nnext: export {names[0]}=…"
