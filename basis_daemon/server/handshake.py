"""`initialize`: agreeing on a version, and what each side says of itself (protocol.md 2)."""

from typing import Any

import msgspec

from basis_daemon.server.error_map import InvalidParams, ProtocolVersion, invalid_params
from basis_protocol import framing, version
from basis_protocol.lifecycle import ClientHello, DaemonInfo, Limits, ServerHello

MAX_PROMPT_BYTES = 16 * 1024 * 1024
"""Largest prompt taken: a long document or a few images, well below what a frame may carry."""

UPGRADE_COMMAND = "pipx upgrade basis-daemon"


class _Experimental(msgspec.Struct):
    basis: msgspec.Raw = msgspec.Raw(b"null")


class _Capabilities(msgspec.Struct):
    experimental: _Experimental | None = None


class _InitializeParams(msgspec.Struct):
    capabilities: _Capabilities | None = None


def read_hello(params: msgspec.Raw) -> ClientHello | None:
    """What a basis client says of itself, or `None` for a plain LSP client. Raises `InvalidParams`."""
    try:
        outer = msgspec.json.decode(bytes(params) or b"{}", type=_InitializeParams | None)
        experimental = outer.capabilities.experimental if outer and outer.capabilities else None
        if experimental is None or bytes(experimental.basis) == b"null":
            return None
        return msgspec.json.decode(experimental.basis, type=ClientHello)
    except msgspec.ValidationError as error:
        raise invalid_params(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidParams("params: not valid JSON in UTF-8", field="params") from None


def agree(hello: ClientHello) -> int:
    """The version both sides will speak. Raises `ProtocolVersion` naming both ranges and the way out."""
    agreed = version.negotiate(hello.protocol_versions)
    if agreed is not None:
        return agreed
    ours, theirs = list(version.SUPPORTED), sorted(hello.protocol_versions)
    newer_client = bool(theirs) and theirs[0] > ours[-1]
    who = "the daemon" if newer_client else hello.client.name
    raise ProtocolVersion(
        f"this daemon speaks basis protocol {_range(ours)}, {hello.client.name} speaks {_range(theirs)}",
        hint=f"upgrade {who}: {UPGRADE_COMMAND}"
        + ("; then `basisctl daemon stop`, the next client starts the new one" if newer_client else ""),
        details={"daemonVersions": ours, "clientVersions": theirs, "upgrade": UPGRADE_COMMAND},
    )


def result(protocol_version: int, daemon: DaemonInfo, features: list[str]) -> dict[str, Any]:
    """The answer to a basis client, in the shape every LSP client library reads."""
    hello = ServerHello(
        protocol_version=protocol_version,
        daemon=daemon,
        limits=Limits(max_frame_bytes=framing.MAX_FRAME_BYTES, max_prompt_bytes=MAX_PROMPT_BYTES),
        features=features,
    )
    return {
        "serverInfo": {"name": "basis-daemon", "version": daemon.version},
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": {"openClose": True, "change": 2, "save": {"includeText": False}},
            "experimental": {"basis": hello},
        },
    }


def _range(versions: list[int]) -> str:
    if not versions:
        return "none"
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
