"""`make demo`, played to the end and interrupted: it shows what it promises and leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interaction.behaviours import behaviour

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MODELS = Path(sys.prefix) / "pocket-models"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the demonstration makes its own."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def start(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "docs/examples/demo.py", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def processes_in(folder: Path) -> list[str]:
    """Processes whose environment names the folder."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"={folder}/basis-demo".encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


@behaviour("demo")
@pytest.mark.timeout(120)
def test_the_demonstration_shows_everything_and_leaves_nothing(stage: Path) -> None:
    has_model = MODELS.is_dir()
    with start(*([] if has_model else ["--rehearsal-only"])) as demo:
        said, _ = demo.communicate(timeout=100)

    assert demo.returncode == 0, said
    for words in ("an edit, shown as a diff", "SIGKILL in mid-turn", "continued after the restart"):
        assert words in said
    assert ("by the pocket model (" in said) == has_model
    assert list(stage.iterdir()) == []
    assert processes_in(stage) == []


@behaviour("demo")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demonstration_leaves_nothing_either(stage: Path, number: signal.Signals) -> None:
    with start("--rehearsal-only") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "[y] yes" in line or "$ basisctl approve" in line:
                break
        demo.send_signal(number)
        demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert list(stage.iterdir()) == []
    assert processes_in(stage) == []
