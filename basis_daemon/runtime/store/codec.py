"""The JSON the store's files are made of (ST-6). Owns their shape and versions; does no I/O.

`agent.json` is `{"schema", "record", "saved_ns"}`. `transcript.jsonl` begins with a header line; every further line is
one append: a record, or an array of the records that were appended together. One line an append makes several records
all or nothing even when the process dies inside the write.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from basis_daemon.errors import CorruptStore
from basis_daemon.runtime.store.base import SCHEMA, AgentRecord, AnyLogRecord, LogRecord

T = TypeVar("T")


class NewerSchema(CorruptStore):
    """A newer version of this program wrote the file. Nothing is wrong with it."""

    kind = "newer_store"

    def __init__(self, path: str, found: int) -> None:
        super().__init__(
            f"{path} has schema {found}; this version reads up to {SCHEMA}",
            hint="upgrade basis-daemon, or use the version that wrote it",
            details={"path": path, "schema": found, "supported": SCHEMA},
        )


class AgentFile(msgspec.Struct, frozen=True):
    """`agent.json`. `saved_ns` orders records saved within the same second."""

    schema: int
    record: AgentRecord
    saved_ns: int = 0


class LogHeader(LogRecord, frozen=True, tag="log"):
    """First line of `transcript.jsonl`."""

    schema: int


class _Versioned(msgspec.Struct):
    schema: int


class _RawAgentFile(msgspec.Struct):
    record: dict[str, Any]


_KNOWN = frozenset(AgentRecord.__struct_fields__)


LogLine = AnyLogRecord | list[AnyLogRecord]

_encoder = msgspec.json.Encoder()
_agent_files = msgspec.json.Decoder(AgentFile)
_raw_files = msgspec.json.Decoder(_RawAgentFile)
_headers = msgspec.json.Decoder(LogHeader)
_lines: msgspec.json.Decoder[LogLine] = msgspec.json.Decoder(LogLine)
_versions = msgspec.json.Decoder(_Versioned)


def encode_agent(record: AgentRecord, saved_ns: int) -> bytes:
    """The file's content, with what a newer version of the same schema had added to the record (AG-1)."""
    file: object = AgentFile(SCHEMA, record, saved_ns)
    if record.extra:
        known = msgspec.to_builtins(msgspec.structs.replace(record, extra={}))
        file = {"schema": SCHEMA, "record": {**record.extra, **known}, "saved_ns": saved_ns}
    return _encode(file) + b"\n"


def decode_agent(data: bytes, path: str) -> AgentFile:
    """Raises `NewerSchema`, `CorruptStore`."""
    try:
        file = _decode(data, _agent_files)
    except (ValueError, RecursionError) as error:
        _refuse_newer(data, path)
        raise _corrupt(path, error) from error
    if file.schema > SCHEMA:
        raise NewerSchema(path, file.schema)
    extra = {name: value for name, value in _decode(data, _raw_files).record.items() if name not in _KNOWN}
    if extra:
        file = msgspec.structs.replace(file, record=msgspec.structs.replace(file.record, extra=extra))
    return file


HEADER = _encoder.encode(LogHeader(SCHEMA)) + b"\n"


def encode_append(records: Sequence[AnyLogRecord]) -> bytes:
    """The line of one append, newline included."""
    return _encode(records[0] if len(records) == 1 else records) + b"\n"


def check_header(line: bytes, path: str) -> None:
    """Raises `NewerSchema`, `CorruptStore`."""
    try:
        header = _headers.decode(line)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, error, line=1) from error
    if header.schema > SCHEMA:
        raise NewerSchema(path, header.schema)


def decode_lines(data: bytes, path: str, first_line: int) -> list[LogLine]:
    """Decode whole lines. `first_line` is the number of the first of them. Raises `CorruptStore`, naming the line."""
    try:
        return _lines.decode_lines(data)
    except (ValueError, RecursionError):
        return [_decode_line(line, path, first_line + at) for at, line in enumerate(data.split(b"\n")) if line]


def _decode_line(line: bytes, path: str, number: int) -> LogLine:
    try:
        return _decode(line, _lines)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, error, line=number) from error


def _encode(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # A name that is not UTF-8 (workspace.md ST-10). The standard library writes its odd bytes as escapes.
        import json

        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def _decode(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        import json

        try:
            plain: Any = json.loads(data)
        except ValueError:
            raise error from None  # it says more than the other
        return msgspec.convert(plain, decoder.type)


def _refuse_newer(data: bytes, path: str) -> None:
    """A newer file may differ in any way; only its number has to be readable."""
    try:
        found = _versions.decode(data).schema
    except (ValueError, RecursionError):
        return
    if found > SCHEMA:
        raise NewerSchema(path, found)


def _corrupt(path: str, error: Exception, *, line: int | None = None) -> CorruptStore:
    where = path if line is None else f"{path}, line {line}"
    return CorruptStore(
        f"{where}: {error or type(error).__name__}",
        hint="the file was not changed; repair it, or move the session's directory aside",
        details={"path": path} if line is None else {"path": path, "line": line},
    )
