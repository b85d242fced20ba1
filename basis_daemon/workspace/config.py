"""What config.json says about a workspace: provider, model, effort, base URL and wire, and which file said so.

Owns the layering of the workspace's file over the global one (workspace.md 2.8). One file is read by `config_file.py`;
what a provider name means is `provider_names.py`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast, get_args

from basis_daemon.errors import InvalidBaseUrl, UnknownProvider
from basis_daemon.runtime.providers.base import Effort
from basis_daemon.runtime.providers.definition import WireName
from basis_daemon.runtime.providers.endpoint import normalise_base_url
from basis_daemon.workspace.config_file import ConfigFile
from basis_daemon.workspace.discovery import GLOBAL, WORKSPACE, Source, distinct
from basis_daemon.workspace.provider_names import provider_id
from basis_protocol.events import ContextFile

WORKSPACE_FILE = ".basis/config.json"
GLOBAL_FILE = "config.json"
EFFORTS: tuple[Effort, ...] = get_args(Effort)
WIRES: tuple[WireName, ...] = get_args(WireName)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[_T]):
    """A value in force and the file it is from."""

    value: _T
    path: Path
    scope: str


@dataclass(frozen=True, slots=True)
class Config:
    """What the config files say, each field from the most specific file that has it (CF-4, CF-6).

    An empty `Config()` given to a builder switches the files off.
    """

    provider: Setting[str] | None = None
    model: Setting[str] | None = None
    effort: Setting[Effort] | None = None
    base_url: Setting[str] | None = None
    wire: Setting[WireName] | None = None
    """What the base URL speaks."""
    files: tuple[ContextFile, ...] = ()
    """The files that were read, most specific first."""

    @property
    def is_empty(self) -> bool:
        return not (self.provider or self.model or self.effort or self.base_url or self.wire or self.files)

    def model_selector(self) -> str | None:
        """The model id asked for, or `None` for the newest one."""
        return self.model.value if self.model else None

    def settings(self) -> dict[str, Setting[str]]:
        """The fields that are set, by key, for reports (CF-8)."""
        fields = {
            "provider": self.provider,
            "model": self.model,
            "effort": self.effort,
            "base_url": self.base_url,
            "wire": self.wire,
        }
        return {key: cast("Setting[str]", setting) for key, setting in fields.items() if setting}


def discover_config(root: Path, *, global_dir: Path | None, environment: Mapping[str, str]) -> Config:
    """Read `root`'s config.json over the global one. `${VAR}` is filled in from `environment`. Blocking file work.

    Absent files are fine (DI-2). Raises `ConfigError` kinds naming file, key and position.
    """
    places = [Source(root / WORKSPACE_FILE, WORKSPACE)]
    if global_dir is not None:
        places.append(Source(global_dir / GLOBAL_FILE, GLOBAL))
    # One file reached both ways counts as the workspace's, so that it can't set what only a person may (DI-3, CF-3).
    present = [place for place in distinct(places) if _is_there(place.path)]
    return layered([ConfigFile(place, environment) for place in present])


def layered(files: list[ConfigFile]) -> Config:
    """One `Config` out of files given most specific first."""
    provider = model = base_url = None
    effort: Setting[Effort] | None = None
    wire: Setting[WireName] | None = None
    for file in reversed(files):
        provider = _provider(file) or provider
        model = _text(file, "model") or model
        effort = _effort(file) or effort
        base_url = _base_url(file) or base_url
        wire = _wire(file) or wire
    return Config(provider, model, effort, base_url, wire, tuple(file.source.report() for file in files))


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # present in some unreadable way: reading it will say which (DI-2)
    return True


def _text(file: ConfigFile, key: str) -> Setting[str] | None:
    entry = file.entries.get(key)
    return Setting(entry.value, file.source.path, file.source.scope) if entry else None


def _provider(file: ConfigFile) -> Setting[str] | None:
    setting = _text(file, "provider")
    if setting is None:
        return None
    try:
        name = provider_id(setting.value)
    except UnknownProvider as error:
        raise file.invalid(file.entries["provider"], f"is no known provider; {error.hint}") from None
    return Setting(name, setting.path, setting.scope)


def _effort(file: ConfigFile) -> Setting[Effort] | None:
    setting = _text(file, "effort")
    if setting is None:
        return None
    if setting.value not in EFFORTS:
        raise file.invalid(file.entries["effort"], f"must be one of {', '.join(EFFORTS)}")
    return Setting(setting.value, setting.path, setting.scope)


def _wire(file: ConfigFile) -> Setting[WireName] | None:
    setting = _text(file, "wire")
    if setting is None:
        return None
    for wire in WIRES:
        if wire == setting.value:
            return Setting(wire, setting.path, setting.scope)
    raise file.invalid(file.entries["wire"], f"must be one of {', '.join(WIRES)}")


def _base_url(file: ConfigFile) -> Setting[str] | None:
    setting = _text(file, "base_url")
    if setting is None:
        return None
    try:
        url = normalise_base_url(setting.value)
    except InvalidBaseUrl as error:
        raise file.invalid(file.entries["base_url"], f"can't be used: {error}") from None
    return Setting(url, setting.path, setting.scope)
