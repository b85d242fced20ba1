"""Records of other versions of this program (runtime.md 3.1)."""

import json

from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.store.codec import decode_agent, encode_agent

MINIMAL = {
    "id": "agent-1",
    "runtime_identifier": "basis:/x",
    "name": "n",
    "base_dir": "/x",
    "provider": "p",
    "model": "m",
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_a_record_written_before_a_field_existed_has_its_default() -> None:
    """AG-1."""
    record = decode_agent(json.dumps({"schema": 1, "record": MINIMAL}).encode(), "agent.json").record
    assert (record.kind, record.turns, record.config, record.extra) == ("conversation", 0, {}, {})


@given(st.dictionaries(st.text().filter(lambda name: name not in AgentRecord.__struct_fields__), VALUES))
def test_fields_of_another_version_are_written_back_as_they_were(extra: dict[str, object]) -> None:
    """AG-1: whatever they are, and as often as the record is saved."""
    data = json.dumps({"schema": 1, "record": {**MINIMAL, **extra}, "saved_ns": 1}).encode()
    for number in range(2):
        file = decode_agent(data, "agent.json")
        data = encode_agent(file.record, number)
        assert json.loads(data)["record"] == {**MINIMAL, **extra}


def test_no_field_of_ours_is_covered_by_one_of_theirs() -> None:
    """AG-1: not even where theirs is called `extra`."""
    data = json.dumps({"schema": 1, "record": {**MINIMAL, "extra": {"id": "other"}}}).encode()
    record = decode_agent(data, "agent.json").record
    assert record.id == "agent-1"
    assert decode_agent(encode_agent(record, 1), "agent.json").record.id == "agent-1"
