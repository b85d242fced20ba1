"""Names for the identifiers that cross the wire. All are opaque strings; only equality means anything."""

from typing import Annotated

import msgspec

SessionId = Annotated[str, msgspec.Meta(description="the persisted agent id; stable across resume, restart and reboot")]
TurnId = Annotated[str, msgspec.Meta(description="one prompt and all that follows from it, unique within its session")]
AskId = Annotated[str, msgspec.Meta(description="one question to a person, unique in the daemon's data directory")]
ToolCallId = Annotated[str, msgspec.Meta(description="one tool call, unique within its session")]
MessageId = Annotated[str, msgspec.Meta(description="one assistant message, shared by its deltas and its final item")]
EntryId = Annotated[str, msgspec.Meta(description="one transcript entry")]
ResultId = Annotated[
    str, msgspec.Meta(description="`<sessionId>/<id>` of one tool result kept in full, for basis/tool/result")
]
Seq = Annotated[int, msgspec.Meta(ge=0, description="number of an event in its session: starts at 1, has no holes")]
