"""JSON-RPC messages as frames, ready for a socket. Encodes; knows no connection and no method."""

from typing import Any

import msgspec

from basis_protocol import framing
from basis_protocol.errors import ErrorData

RequestId = int | str

encoder = msgspec.json.Encoder()


def response(request_id: RequestId, result: Any) -> bytes:
    """The answer to `request_id`. Raises `TypeError` for a result that is no JSON."""
    return framing.encode(
        b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encoder.encode(request_id), encoder.encode(result))
    )


def error(request_id: RequestId | None, code: int, message: str, data: ErrorData) -> bytes:
    """The refusal of `request_id`; `None` where the id could not be read."""
    return framing.encode(
        b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b,"data":%b}}'
        % (encoder.encode(request_id), code, encoder.encode(message), encoder.encode(data))
    )


def notification(method: str, params: Any) -> bytes:
    return framing.encode(
        b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encoder.encode(method), encoder.encode(params))
    )
