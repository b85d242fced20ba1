"""The golden messages: one file for every message, read here as the editors read them."""

import json
import typing
from pathlib import Path

import msgspec
import pytest

from basis_protocol import asks, content, errors, events, lifecycle
from basis_protocol.methods import METHODS
from codegen.golden import stem, tag

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"


def expected() -> dict[str, type]:
    """File name → the type it holds, from the method table and the event union."""
    found: dict[str, type] = {}
    for method in METHODS.values():
        found[f"{stem(method.name)}.params.json"] = method.params
        if method.result is not None:
            found[f"{stem(method.name)}.result.json"] = method.result
    for event in typing.get_args(events.AnyEvent):
        found[f"event.{tag(event)}.json"] = event
    return found | {
        "initialize.clientHello.json": lifecycle.ClientHello,
        "initialize.serverHello.json": lifecycle.ServerHello,
        "cancelRequest.json": lifecycle.CancelParams,
        "error.data.json": errors.ErrorData,
        "error.askDecided.json": asks.AskDecided,
        "preview.diff.json": content.DiffPreview,
        "preview.command.json": content.CommandPreview,
        "preview.call.json": content.CallPreview,
    }


EXPECTED = expected()


def test_there_is_one_file_for_every_message_and_no_other() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_message_survives_being_read_and_written(name: str) -> None:
    text = (GOLDEN / name).read_bytes()

    message = msgspec.json.decode(text, type=EXPECTED[name])

    assert json.loads(msgspec.json.encode(message)) == json.loads(text)


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if name.startswith("event.")))
def test_an_event_is_told_apart_by_its_type(name: str) -> None:
    event = events.decode_event((GOLDEN / name).read_bytes())

    assert type(event) is EXPECTED[name]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_message_conforms_to_the_published_schema(name: str) -> None:
    """What an editor author validates against says the same as the types."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((GOLDEN.parent / "schema" / "basis.schema.json").read_text("utf-8"))
    schema["$ref"] = f"#/$defs/{EXPECTED[name].__name__}"

    jsonschema.Draft202012Validator(schema).validate(json.loads((GOLDEN / name).read_text("utf-8")))


def test_every_optional_field_of_a_prompt_is_seen_in_its_golden_message() -> None:
    """The message with the most parts shows all of them, so that a renamed field can't go unseen."""
    prompt = json.loads((GOLDEN / "session.prompt.params.json").read_text("utf-8"))

    assert {block["type"] for block in prompt["input"]} == {
        block.__struct_config__.tag for block in typing.get_args(content.InputBlock)
    }
    assert set(prompt) >= {"sessionId", "input", "bounds", "output", "whenBusy", "unattended"}
