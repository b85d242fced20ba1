"""How an id becomes the name of a file or a directory (ST-11, ST-30).

Owns the one encoding. Whatever a caller passes as an id, the name holds no separator, is not hidden, fits every common
file system, and no two ids share one.
"""

import re

MAX_NAME_BYTES = 200
"""Leaves room for suffixes below the 255 bytes file systems allow."""

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|\Z)", re.IGNORECASE)
"""Names that mean a device on Windows, with or without an extension."""


def encode_name(name: str) -> str:
    """Return `name` itself where it is harmless, else `x-` and the hex of its UTF-8; long ones end in a digest."""
    if _is_harmless(name):
        return name
    raw = name.encode("utf-8", "surrogatepass")
    encoded = f"x-{raw.hex()}"
    if len(encoded) <= MAX_NAME_BYTES:
        return encoded
    import hashlib  # rare, and slow to import

    # The second hyphen keeps these apart from the plain hex form.
    return f"{encoded[:160]}-{hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def _is_harmless(name: str) -> bool:
    if not _PLAIN.match(name) or name.startswith(".") or name.endswith("."):
        return False
    return name[:2].lower() != "x-" and not _RESERVED.match(name)
