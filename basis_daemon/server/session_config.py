"""What a person may set about a session: mode, model, effort (protocol.md 3, `session/setConfig`).

Owns the options, their choices, and what setting one does to the run. The mode is kept in `session.json` beside the
conversation: a session that was set to `never` or `always` must not forget it while nobody looks.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from basis_daemon.runtime.providers.base import Effort, ModelInfo
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.workspace.approval import MODES
from basis_daemon.workspace.config import EFFORTS
from basis_daemon.workspace.efforts import efforts_of
from basis_daemon.workspace.run import Mode, PreparedRun
from basis_protocol.sessions import ConfigChoice, ConfigOption

SETTINGS_FILE = "session.json"
DEFAULT_EFFORT = "default"

_MODE_LABELS = {"prompt": "Ask before changes", "always": "Allow everything", "never": "Allow no changes"}


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `session.json` holds."""

    mode: str = "prompt"


def options(record: AgentRecord, mode: str, known: Sequence[ModelInfo] = ()) -> list[ConfigOption]:
    """The options of a session with their present values. `known` are the models its provider has told of by now; a
    model may be set whether or not it is among them (PR-10)."""
    own = [ModelInfo(record.model, record.provider)] if record.model else []
    models = {model.id: model for model in (*own, *known)}
    return [
        ConfigOption(
            option="mode",
            category="mode",
            label="Mode",
            value=mode,
            choices=[ConfigChoice(value=each, label=_MODE_LABELS[each]) for each in ("prompt", "always", "never")],
        ),
        ConfigOption(
            option="model",
            category="model",
            label="Model",
            value=record.model,
            choices=[ConfigChoice(value=id, label=model.display_name or id) for id, model in models.items()],
        ),
        ConfigOption(
            option="effort",
            category="effort",
            label="Reasoning effort",
            value=record.effort or DEFAULT_EFFORT,
            choices=[ConfigChoice(value=each, label=each.capitalize()) for each in _efforts(record)],
        ),
    ]


def _efforts(record: AgentRecord) -> list[str]:
    """What the model takes, or everything while that is not known; what is set is always among it."""
    offered = efforts_of(record.provider, record.model)
    words = [DEFAULT_EFFORT, *(EFFORTS if offered is None else offered)]
    return words if record.effort in (None, *words) else [*words, str(record.effort)]


def apply(run: PreparedRun, option: str, value: str) -> None:
    """Set one option of a live run; never waits for a turn (DM-18). Raises `InvalidParams` for what isn't offered."""
    match option:
        case "mode":
            run.mode = _mode(value)
            # Answers given under the old mode were given under other circumstances (AP-27).
            run.forget_session_answers()
        case "model":
            if not value.strip():
                raise InvalidParams("value: a model has a name", field="value")
            run.set_model(value.strip())
        case "effort":
            run.set_effort(_effort(value))
        case _:
            raise InvalidParams(f"option: there is no option {option!r}, only mode, model and effort", field="option")


def load(directory: Path | None) -> Mode:
    """The mode a conversation was left in. Blocking. An unreadable file is the cautious default: ask."""
    if directory is None:
        return "prompt"
    try:
        return _mode(msgspec.json.decode((directory / SETTINGS_FILE).read_bytes(), type=Settings).mode)
    except (OSError, ValueError, RecursionError, InvalidParams):
        return "prompt"


def save(directory: Path | None, mode: str) -> None:
    """Keep the mode. Blocking. Nothing happens for a conversation that has no place on disk (yet)."""
    if directory is None:
        return
    temporary = directory / f".{SETTINGS_FILE}.new"
    temporary.write_bytes(msgspec.json.encode(Settings(mode)) + b"\n")
    temporary.chmod(0o600)
    os.replace(temporary, directory / SETTINGS_FILE)


def _mode(value: str) -> Mode:
    for mode in MODES:
        if mode == value:
            return mode
    raise InvalidParams(f"value: the mode is one of {', '.join(MODES)}, not {value!r}", field="value")


def _effort(value: str) -> Effort | None:
    if value == DEFAULT_EFFORT:
        return None
    for effort in EFFORTS:
        if effort == value:
            return effort
    raise InvalidParams(f"value: the effort is one of {', '.join((DEFAULT_EFFORT, *EFFORTS))}", field="value")
