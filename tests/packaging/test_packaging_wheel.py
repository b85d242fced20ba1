"""The wheel: what is in it, and that it works in an environment that has nothing of this checkout."""

import configparser
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGES = {"basis_acp", "basis_client", "basis_daemon", "basis_protocol", "basisctl"}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it. Its dependencies are lent by the one the tests run in, whose own link to
    this checkout is not followed: a path file's lines are directories, and path files in those are not read."""
    venv = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv.parent)
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python")
    run(*pip, "install", "--no-deps", "--no-index", "--quiet", wheel, cwd=venv.parent)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "lent_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def read(wheel: Path, ending: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(ending))
        return archive.read(name).decode()


def test_five_packages_are_shipped_and_nothing_else(wheel: Path) -> None:
    top = {name.partition("/")[0] for name in names(wheel)}

    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_package_says_that_it_is_typed(wheel: Path, package: str) -> None:
    assert f"{package}/py.typed" in names(wheel)


def test_every_module_of_the_checkout_is_shipped(wheel: Path) -> None:
    folders = ("basis_daemon", "shared/basis_protocol", "clients/basis_client", "clients/basisctl", "clients/basis_acp")
    wanted = {
        str(path.relative_to((ROOT / folder).parent)) for folder in folders for path in (ROOT / folder).rglob("*.py")
    }

    assert wanted - set(names(wheel)) == set()


def test_three_commands_are_installed(wheel: Path) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(read(wheel, "/entry_points.txt"))

    assert dict(parser["console_scripts"]) == PROJECT["scripts"]
    assert set(PROJECT["scripts"]) == {"basis-daemon", "basisctl", "basis-acp"}


def test_metadata_name_the_licence_and_the_dependencies(wheel: Path) -> None:
    metadata = Parser().parsestr(read(wheel, "/METADATA"))

    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(required) == len(PROJECT["dependencies"])
    assert any(name.endswith("/LICENSE") for name in names(wheel))


@pytest.mark.parametrize("command", ["basisctl", "basis-daemon"])
def test_an_installed_command_tells_its_version(clean_venv: Path, tmp_path: Path, command: str) -> None:
    assert PROJECT["version"] in run(clean_venv / "bin" / command, "--version", cwd=tmp_path)


def test_the_acp_command_says_that_it_is_not_there_yet(clean_venv: Path, tmp_path: Path) -> None:
    done = subprocess.run([clean_venv / "bin" / "basis-acp"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "not part of this version" in done.stderr
    assert done.stdout == ""


def test_the_installed_packages_are_the_wheels_own(clean_venv: Path, tmp_path: Path) -> None:
    program = (
        f"import {', '.join(sorted(PACKAGES))}; print({', '.join(f'{name}.__file__' for name in sorted(PACKAGES))})"
    )
    places = run(clean_venv / "bin" / "python", "-c", program, cwd=tmp_path).split()

    assert [place for place in places if not place.startswith(str(clean_venv))] == []


def test_a_prompt_is_answered_from_an_installed_wheel(clean_venv: Path, tmp_path: Path) -> None:
    """Install, prompt: nothing in between. With no key and no server the rehearsal provider answers."""
    (tmp_path / "notes.txt").write_text("the pump is blue\n")
    basisctl = clean_venv / "bin" / "basisctl"
    os.environ["BASIS_DATA_DIR"] = str(tmp_path / "data")
    try:
        answer = run(basisctl, "run", "read notes.txt", cwd=tmp_path)
    finally:
        run(basisctl, "daemon", "stop", cwd=tmp_path)

    assert "the pump is blue" in answer
