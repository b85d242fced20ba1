"""`codegen`: what is generated is complete, repeatable, and known to be stale when it is."""

import json
from pathlib import Path

import pytest

from basis_protocol.methods import METHODS
from codegen import generate, lua, typescript
from codegen.error_kinds import error_kinds
from codegen.reading import protocol

ROOT = Path(__file__).resolve().parents[2]


def test_the_files_in_the_tree_are_what_would_be_written_now() -> None:
    assert generate.stale() == []


def test_writing_twice_gives_the_same_bytes() -> None:
    assert list(generate.outputs()) == list(generate.outputs())


def test_check_names_a_file_that_is_stale_missing_or_nobodys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate.write(tmp_path)
    assert generate.main(["--check", "--root", str(tmp_path)]) == 0
    (tmp_path / "shared/golden/daemon.ping.result.json").write_text("{}")
    (tmp_path / "shared/golden/forgotten.json").write_text("{}")
    (tmp_path / "docs/reference/protocol.md").unlink()

    assert generate.main(["--check", "--root", str(tmp_path)]) == 1

    said = capsys.readouterr().err
    assert [line.split()[1] for line in said.splitlines()] == [
        "docs/reference/protocol.md",
        "shared/golden/daemon.ping.result.json",
        "shared/golden/forgotten.json",
    ]
    assert generate.main(["--root", str(tmp_path)]) == 0
    assert generate.stale(tmp_path) == []


def test_every_method_is_in_every_output() -> None:
    schema = json.loads((ROOT / "shared/schema/basis.schema.json").read_text("utf-8"))
    texts = [
        typescript.render(protocol()),
        lua.render(protocol()),
        (ROOT / "docs/reference/protocol.md").read_text("utf-8"),
    ]

    assert list(schema["x-methods"]) == list(METHODS)
    for name in METHODS:
        assert all(name in text for text in texts), name


def test_every_type_and_event_is_in_every_output() -> None:
    schema = json.loads((ROOT / "shared/schema/basis.schema.json").read_text("utf-8"))
    written = typescript.render(protocol())
    annotated = lua.render(protocol())
    for struct in protocol().structs:
        assert struct.name in schema["$defs"]
        assert f" {struct.name} " in written
        assert f"---@class basis.{struct.name}\n" in annotated


def test_open_words_stay_open_in_typescript_and_lua() -> None:
    state = "idle"

    assert f'kind: "{state}" | ' in typescript.render(protocol())
    assert '"ended" | (string & {})' in typescript.render(protocol())
    assert '"ended"|string' in lua.render(protocol())


def test_known_words_are_listed_in_the_schema() -> None:
    schema = json.loads((ROOT / "shared/schema/basis.schema.json").read_text("utf-8"))

    assert "waiting_person" in schema["$defs"]["SessionState"]["properties"]["kind"]["x-known-values"]


def test_a_method_name_becomes_a_lua_name() -> None:
    assert lua.constant("basis/session/setConfig") == "session_set_config"


def test_kinds_of_errors_are_read_from_the_daemons_source() -> None:
    kinds = error_kinds(ROOT / "basis_daemon")

    assert kinds["stale_turn"]
    assert "error" not in kinds
