"""Compressing requests with zstd (PV-36), where Python itself can: from 3.14 on."""

import sys

from basis_daemon.runtime.providers.errors import UnsupportedCapability

LEVEL = 3


def is_available() -> bool:
    return sys.version_info >= (3, 14)


def require_zstd() -> None:
    """Raise `UnsupportedCapability` where no request can be compressed."""
    if not is_available():
        raise UnsupportedCapability(
            f"requests can't be compressed with zstd: Python has it from 3.14 on, and this is {sys.version_info.major}"
            f".{sys.version_info.minor}",
            hint="send them uncompressed, or run the daemon with a newer Python",
        )


def zstd(data: bytes) -> bytes:
    """`data` as one zstd frame. Takes time that grows with it: call it in a thread."""
    require_zstd()
    from importlib import import_module  # unknown to type checkers of older Pythons

    return import_module("compression.zstd").compress(data, level=LEVEL)
