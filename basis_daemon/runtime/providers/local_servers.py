"""How the model servers people run on their own machines are recognised, and what they say of their models.

Owns the paths that are asked, the shape of the answers and what counts as proof: an open port is none. Only GETs, no
key, nothing that loads a model. Who is asked and how is `local_detection.py`'s.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import msgspec

Kind = Literal["ollama", "lmstudio", "llama-server"]

T = TypeVar("T")

Fetch = Callable[[str], Awaitable[tuple[int, bytes] | None]]
"""GET a path: status and body, or `None` when there was no answer that could be read."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model a local server offers for chatting. Unknown is `None`."""

    id: str
    has_tools: bool | None = None
    context_tokens: int | None = None
    is_loaded: bool | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server that proved its kind has to offer. `cloud_models` were left out: they send the code away."""

    version: str | None = None
    models: tuple[LocalModel, ...] = ()
    cloud_models: int = 0
    needs_key: bool = False


def ranked(models: Sequence[LocalModel]) -> tuple[LocalModel, ...]:
    """Loaded ones first: naming another makes some servers load gigabytes; then those known for tools."""
    order: Final = {True: 0, None: 1, False: 2}
    return tuple(sorted(models, key=lambda model: (order[model.is_loaded], order[model.has_tools])))


# --- Ollama ----------------------------------------------------------------------------------------------------------


class _OllamaVersion(msgspec.Struct):
    version: str


class _OllamaDetails(msgspec.Struct):
    family: str | None = None
    families: list[str] | None = None


class _OllamaModel(msgspec.Struct):
    name: str
    remote_host: str | None = None
    remote_model: str | None = None
    capabilities: list[str] | None = None
    details: _OllamaDetails | None = None
    context_length: int | None = None


class _OllamaModels(msgspec.Struct):
    models: list[_OllamaModel] | None


async def ollama(fetch: Fetch) -> Listing | None:
    """`/api/version` and `/api/tags` prove it; `/api/ps` tells what is loaded, and with how much context."""
    version = _read(await fetch("/api/version"), _OllamaVersion)
    tags = _read(await fetch("/api/tags"), _OllamaModels) if version else None
    if version is None or tags is None:
        return None
    running = _read(await fetch("/api/ps"), _OllamaModels)
    contexts = {model.name: model.context_length for model in (running and running.models) or ()}
    all_models = tags.models or []
    here = [model for model in all_models if not _is_cloud(model)]
    models = [
        LocalModel(
            model.name,
            has_tools=None if model.capabilities is None else "tools" in model.capabilities,
            context_tokens=contexts.get(model.name),
            is_loaded=model.name in contexts if running else None,
        )
        for model in here
        if _can_chat(model)
    ]
    return Listing(version.version, ranked(models), cloud_models=len(all_models) - len(here))


def _is_cloud(model: _OllamaModel) -> bool:
    tag = model.name.rpartition(":")[2]
    return bool(model.remote_host or model.remote_model) or tag == "cloud" or tag.endswith("-cloud")


def _can_chat(model: _OllamaModel) -> bool:
    if model.capabilities is not None:
        return "completion" in model.capabilities
    details = model.details or _OllamaDetails()
    families = {*(details.families or ()), details.family or ""}
    return "embed" not in model.name and not any("bert" in family for family in families)


# --- LM Studio -------------------------------------------------------------------------------------------------------


class _Config(msgspec.Struct):
    context_length: int | None = None


class _Instance(msgspec.Struct):
    config: _Config | None = None


class _Capabilities(msgspec.Struct):
    trained_for_tool_use: bool | None = None


class _StudioModel(msgspec.Struct):
    type: str
    key: str
    loaded_instances: list[_Instance] | None = None
    capabilities: _Capabilities | None = None


class _StudioModels(msgspec.Struct):
    models: list[_StudioModel]


class _StudioModelV0(msgspec.Struct):
    id: str
    type: str
    state: str
    loaded_context_length: int | None = None
    capabilities: list[str] | None = None


class _StudioModelsV0(msgspec.Struct):
    data: list[_StudioModelV0]


async def lmstudio(fetch: Fetch) -> Listing | None:
    """`/api/v1/models` proves it, or before version 0.4 `/api/v0/models`."""
    answer = await fetch("/api/v1/models")
    if answer is not None and answer[0] == 401:
        return Listing(needs_key=True)
    listed = _read(answer, _StudioModels)
    if listed is not None:
        return Listing(models=ranked([_studio_model(model) for model in listed.models if model.type in ("llm", "vlm")]))
    older = _read(await fetch("/api/v0/models"), _StudioModelsV0) if answer is not None else None
    if older is None:
        return None
    models = [
        LocalModel(
            model.id,
            has_tools=None if model.capabilities is None else "tool_use" in model.capabilities,
            context_tokens=model.loaded_context_length,
            is_loaded=model.state == "loaded",
        )
        for model in older.data
        if model.type in ("llm", "vlm")
    ]
    return Listing(models=ranked(models))


def _studio_model(model: _StudioModel) -> LocalModel:
    configs = [instance.config for instance in model.loaded_instances or () if instance.config]
    return LocalModel(
        model.key,
        has_tools=model.capabilities.trained_for_tool_use if model.capabilities else None,
        context_tokens=configs[0].context_length if configs else None,
        is_loaded=bool(model.loaded_instances),
    )


# --- llama-server ----------------------------------------------------------------------------------------------------


class _Meta(msgspec.Struct):
    n_ctx: int | None = None


class _LlamaModel(msgspec.Struct):
    id: str
    owned_by: str
    meta: _Meta | None = None


class _LlamaModels(msgspec.Struct):
    data: list[_LlamaModel]


class _TemplateCaps(msgspec.Struct):
    supports_tools: bool | None = None


class _Props(msgspec.Struct):
    chat_template_caps: _TemplateCaps | None = None
    build_info: str | None = None


async def llama_server(fetch: Fetch) -> Listing | None:
    """Its port is everybody's: only models that say `owned_by: llamacpp` prove it."""
    listed = _read(await fetch("/v1/models"), _LlamaModels)
    if listed is None or not listed.data or any(model.owned_by != "llamacpp" for model in listed.data):
        return None
    props = _read(await fetch("/props"), _Props) or _Props()
    has_tools = props.chat_template_caps.supports_tools if props.chat_template_caps else None
    models = [
        LocalModel(model.id, has_tools, model.meta.n_ctx if model.meta else None, is_loaded=True)
        for model in listed.data
    ]
    return Listing(props.build_info, tuple(models))


def _read(answer: tuple[int, bytes] | None, type: type[T]) -> T | None:
    if answer is None or answer[0] != 200:
        return None
    try:
        return msgspec.json.decode(answer[1], type=type)
    except (msgspec.DecodeError, RecursionError):
        return None
