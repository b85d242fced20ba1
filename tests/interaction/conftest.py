"""A repository for the end-to-end tests."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small git repository with one file worth reading."""
    root = tmp_path / "engine"
    root.mkdir()
    (root / "pump.py").write_text("DELAY_S = 2\n")
    subprocess.run(["git", "init", "--quiet", root], check=True, timeout=30)
    return root
