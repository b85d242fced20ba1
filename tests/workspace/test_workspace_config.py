"""config.json: layering, expansion, and errors that say where but never what."""

import os
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

from basis_daemon.errors import ConfigError
from basis_daemon.workspace.config import Config, Setting, discover_config
from basis_daemon.workspace.config_file import (
    ConfigInvalid,
    ConfigMalformed,
    ConfigUnreadable,
    ConfigUnsupportedSchema,
    ConfigWithoutSchema,
    ExpansionError,
    WorkspaceBaseUrl,
    expand,
)
from basis_protocol.events import ContextFile
from support.workspaces import write_files

CANARY = "sk-canary-5f1e"


def discover(root: Path, *, global_dir: Path | None = None, environment: Mapping[str, str] | None = None) -> Config:
    return discover_config(root, global_dir=global_dir, environment=environment or {})


def failure(root: Path, text: str | bytes, kind: type[ConfigError]) -> ConfigError:
    """The error that a workspace file of this text gives, checked to say nothing of what it holds (DI-4)."""
    path = root / ".basis" / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(kind) as caught:
        discover(root)
    error = caught.value
    assert error.path == str(path) and str(path) in str(error)
    assert CANARY not in "".join(traceback.format_exception(error))
    assert error.__cause__ is None
    return error


def test_no_file_is_an_empty_config(tmp_path: Path) -> None:
    """DI-2."""
    assert discover(tmp_path, global_dir=tmp_path / "none").is_empty


def test_a_fifo_in_the_place_of_a_file_is_told_and_waited_for_by_nobody(tmp_path: Path) -> None:
    """DI-2: it exists and can't be read; a repository could bring one."""
    path = tmp_path / ".basis" / "config.json"
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(ConfigUnreadable, match="not a regular file"):
        discover(tmp_path)


def test_the_workspace_wins_field_by_field(tmp_path: Path) -> None:
    """CF-2, CF-4, CF-6, DI-6."""
    write_files(
        tmp_path,
        {
            "g/config.json": {"schema": 1, "provider": "OpenAI", "model": "g", "base_url": " https://gw.example/v1/ "},
            "w/.basis/config.json": {"schema": 1, "model": "w", "effort": "high"},
        },
    )
    here, there = tmp_path / "w/.basis/config.json", tmp_path / "g/config.json"

    assert discover(tmp_path / "w", global_dir=tmp_path / "g") == Config(
        provider=Setting("openai", there, "global"),
        model=Setting("w", here, "workspace"),
        effort=Setting("high", here, "workspace"),
        base_url=Setting("https://gw.example/", there, "global"),
        files=(ContextFile(path=str(here), scope="workspace"), ContextFile(path=str(there), scope="global")),
    )


def test_values_are_expanded_from_the_given_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CF-2, EX-1, protocol.md 6: not from the environment of this process."""
    monkeypatch.setenv("MODEL", "wrong")
    write_files(tmp_path, {".basis/config.json": {"schema": 1, "model": "${FAMILY:-gpt}-${MODEL}"}})

    config = discover(tmp_path, environment={"MODEL": "5"})

    assert config.model_selector() == "gpt-5"


def test_a_repository_cannot_choose_where_prompts_go(tmp_path: Path) -> None:
    """CF-3: refused before anything is expanded, with the key's place."""
    error = failure(
        tmp_path, '{\n  "schema": 1,\n  "base_url": "https://${UNSET}.sk-canary-5f1e.example"\n}', WorkspaceBaseUrl
    )

    assert (error.key, error.line, error.column) == ("base_url", 3, 3)


def test_a_global_directory_inside_the_repository_is_the_repositorys(tmp_path: Path) -> None:
    """DI-3, CF-3: reaching the file by the global route lifts nothing."""
    write_files(tmp_path, {".basis/config.json": {"schema": 1, "base_url": "https://evil.example"}})

    with pytest.raises(WorkspaceBaseUrl):
        discover(tmp_path, global_dir=tmp_path / ".basis")


def test_every_problem_names_its_place_and_no_value(tmp_path: Path) -> None:
    """CF-1, CF-2, DI-4, EX-2."""
    cases: list[tuple[str, type[ConfigError], str | None, tuple[int, int]]] = [
        ("{}", ConfigWithoutSchema, None, (1, 1)),
        ('{"model": "sk-canary-5f1e"}', ConfigWithoutSchema, None, (1, 1)),
        ('{"schema": 2}', ConfigUnsupportedSchema, "schema", (1, 2)),
        ('{"schema": true}', ConfigUnsupportedSchema, "schema", (1, 2)),
        ('{"schema": 1,\n "sk-canary-5f1e": 1}', ConfigInvalid, None, (2, 2)),
        ('{"schema": 1, "api_key": "sk-canary-5f1e"}', ConfigInvalid, None, (1, 15)),
        ('{"schema": 1, "model": " "}', ConfigInvalid, "model", (1, 15)),
        ('{"schema": 1, "model": 5}', ConfigInvalid, "model", (1, 15)),
        ('{"schema": 1, "model": "sk-canary-5f1e${UNSET}"}', ConfigInvalid, "model", (1, 15)),
        ('{"schema": 1, "provider": "sk-canary-5f1e"}', ConfigInvalid, "provider", (1, 15)),
        ('{"schema": 1, "effort": "sk-canary-5f1e"}', ConfigInvalid, "effort", (1, 15)),
        ('{"schema": 1,\n\t"model": "a",\n\t"model": "sk-canary-5f1e"}', ConfigInvalid, "model", (3, 2)),
        ('{"schema": 1, "model": "sk-canary-5f1e"', ConfigMalformed, None, (1, 40)),
        ('{"schema": 1,\n "model": sk-canary-5f1e}', ConfigMalformed, None, (2, 11)),
        ('{"schema": 1,}', ConfigMalformed, None, (1, 14)),
        ('{"schema": 1} sk-canary-5f1e', ConfigMalformed, None, (1, 15)),
        ('{"schema": 1, "model": "\\qsk-canary-5f1e"}', ConfigMalformed, None, (1, 25)),
        ('["sk-canary-5f1e"]', ConfigMalformed, None, (1, 1)),
        ("", ConfigMalformed, None, (1, 1)),
        ('{"schema": ' + "[" * 100_000, ConfigMalformed, None, (1, 1)),
        ('{"schema": ' + "7" * 5000 + "}", ConfigMalformed, None, (1, 1)),
    ]
    for text, kind, key, place in cases:
        error = failure(tmp_path, text, kind)
        assert (error.key, (error.line, error.column)) == (key, place), text[:60]


def test_a_bad_base_url_is_reported_without_the_url(tmp_path: Path) -> None:
    """PR-3, PR-12: a URL may hold a password."""
    write_files(tmp_path, {"g/config.json": {"schema": 1, "base_url": f"ftp://me:{CANARY}@h"}})

    with pytest.raises(ConfigInvalid) as caught:
        discover(tmp_path / "w", global_dir=tmp_path / "g")
    assert caught.value.key == "base_url" and CANARY not in str(caught.value)


def test_the_wire_of_a_base_url_is_the_persons_to_choose(tmp_path: Path) -> None:
    """CF-3, PR-4: what is sent where is not a repository's matter; a wire nobody speaks is refused."""
    path = tmp_path / "g/config.json"
    write_files(tmp_path, {"g/config.json": {"schema": 1, "wire": "anthropic_messages"}})
    assert discover(tmp_path / "w", global_dir=tmp_path / "g").wire == Setting("anthropic_messages", path, "global")

    write_files(tmp_path, {"g/config.json": {"schema": 1, "wire": "telegraph"}})
    with pytest.raises(ConfigInvalid, match="responses"):
        discover(tmp_path / "w", global_dir=tmp_path / "g")
    assert failure(tmp_path, '{"schema": 1, "wire": "responses"}', WorkspaceBaseUrl).key == "wire"


def test_a_file_that_is_there_but_cannot_be_read_fails(tmp_path: Path) -> None:
    """DI-2."""
    failure(tmp_path, b'{"schema": 1, "model": "caf\xe9 sk-canary-5f1e"}', ConfigUnreadable)
    (tmp_path / ".basis/config.json").unlink()
    (tmp_path / ".basis/config.json").mkdir()
    with pytest.raises(ConfigUnreadable):
        discover(tmp_path)
    (tmp_path / ".basis/config.json").rmdir()
    (tmp_path / ".basis/config.json").symlink_to("gone")
    with pytest.raises(ConfigUnreadable):
        discover(tmp_path)


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    write_files(tmp_path, {".basis/config.json": '\ufeff{"schema": 1, "model": "m"}'})

    assert discover(tmp_path).model_selector() == "m"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$NAME and $ stay", "$NAME and $ stay"),
        ("${NAME}", "value"),
        ("${ NAME }", "value"),
        ("a${NAME}b${EMPTY}c", "avaluebc"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${UNSET:- spaced }", " spaced "),
        ("${UNSET:-a:-b}", "a:-b"),
        ("${:-only}", "only"),
        ("${LOOP}", "${NAME}"),
        ("${UNSET:-$NAME}", "$NAME"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    """EX-1, EX-3: single pass, split at the first `:-`, name trimmed, default not."""
    assert expand(text, {"NAME": "value", "EMPTY": "", "LOOP": "${NAME}"}) == expected


@pytest.mark.parametrize(("text", "says"), [("${UNSET}", "UNSET"), ("a${NAME", "unterminated"), ("${}", "empty")])
def test_expansion_that_cannot_be_done_names_the_variable(text: str, says: str) -> None:
    """EX-2."""
    with pytest.raises(ExpansionError, match=says):
        expand(text, {"NAME": CANARY})
