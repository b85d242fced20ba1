"""The many shapes in which models send edits (4.10).

Owns turning any of them into a path and a list of `Edit`.
"""

from typing import Any, cast

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.tools.edits import Edit
from basis_daemon.runtime.tools.inputs import PATH_ALIASES, flag, spelled, string

MAX_EDITS = 200


def read_edits(input: dict[str, Json]) -> tuple[str, list[Edit]]:
    """The path and the edits. Raises `ToolError`."""
    fields = canonical_edits(input)
    path, everywhere = string(fields, "path"), flag(fields, "replace_all")
    entries = fields.get("edits")
    if not isinstance(entries, list) or not entries:
        raise ToolError("edits: expected a list of at least one edit")
    if len(cast(list[Any], entries)) > MAX_EDITS:
        raise ToolError(f"edits: more than {MAX_EDITS} at once")
    return path, [_edit(entry, everywhere) for entry in cast(list[Json], entries)]


def _edit(entry: Json, everywhere: bool) -> Edit:
    if not isinstance(entry, dict):
        raise ToolError("edits: expected objects with old_string and new_string")
    fields = cast(dict[str, Json], entry)
    everywhere = everywhere or flag(fields, "replace_all")
    return Edit(string(fields, "old_string"), string(fields, "new_string"), everywhere)


_spell_file = spelled({**PATH_ALIASES, "replaceAll": "replace_all"})
_spell_edit = spelled(
    {
        "oldText": "old_string",
        "old": "old_string",
        "oldString": "old_string",
        "newText": "new_string",
        "new": "new_string",
        "newString": "new_string",
        "replaceAll": "replace_all",
    }
)


def canonical_edits(input: dict[str, Json]) -> dict[str, Json]:
    """Edits as a list of objects, whether they came so, as one object, as JSON text, or beside the path."""
    fields = _spell_file(input)
    edits = fields.pop("edits", None)
    if isinstance(edits, str):
        edits = _parsed(edits)
    if isinstance(edits, dict):
        edits = cast(Json, [edits])
    if not edits:
        beside = _spell_edit(fields)
        flat = {name: beside[name] for name in ("old_string", "new_string") if name in beside}
        edits = cast(Json, [flat]) if flat else edits
    if isinstance(edits, list):
        entries = cast(list[Any], edits)
        edits = [_spell_edit(cast(dict[str, Json], entry)) if isinstance(entry, dict) else entry for entry in entries]
    return fields if edits is None else {**fields, "edits": edits}


def _parsed(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
