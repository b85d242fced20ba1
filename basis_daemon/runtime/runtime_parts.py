"""What a runtime is made of, as far as its host has said: every `with_*` of a builder (runtime.md 1.1).

Owns the values and their order. Makes nothing: `build` is the builder's own, see `runtime.py`, and `testing.py` for the
one with a scripted model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from basis_daemon.errors import ProviderNotFound
from basis_daemon.processes import Executor
from basis_daemon.redact import Secret
from basis_daemon.runtime.hooks.chain import HookChain
from basis_daemon.runtime.hooks.contract import (
    INTERCEPTOR_TIMEOUT_S,
    ExecutionHook,
    Intercepting,
    Interceptor,
    PostHook,
    PreHook,
)
from basis_daemon.runtime.observers import AuditHook, RuntimeHook
from basis_daemon.runtime.permissions import Authorizer
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import Provider, RequestOptions, ResponsesTransport
from basis_daemon.runtime.providers.definition import (
    CredentialSource,
    ProviderDefinition,
    StaticCredentials,
    WireName,
)
from basis_daemon.runtime.providers.registry import (
    PRESETS,
    chat_completions_definition,
    lmstudio_definition,
    ollama_definition,
)
from basis_daemon.runtime.store.base import Store
from basis_daemon.runtime.tools.base import Tool
from basis_daemon.runtime.tools.builtin import FileToolProfile


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a host says about how models are reached. Everything may be left open."""

    provider: str | None = None
    api_key: Secret | None = None
    base_url: str | None = None
    wire: WireName | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class DefinedProvider:
    """A provider that the runtime makes on its own connections, from a definition and where its key comes from."""

    definition: ProviderDefinition
    credentials: CredentialSource


def credentials_of(key: str | CredentialSource | None) -> CredentialSource:
    """Where a key comes from: the same one for ever, none, or whoever is asked ahead of every request (RT-35)."""
    return StaticCredentials(Secret(key) if key is not None else None) if key is None or isinstance(key, str) else key


def preset(name: str) -> ProviderDefinition:
    """The definition of a known provider. Raises `ProviderNotFound`."""
    found = PRESETS.get(name)
    if found is None:
        raise ProviderNotFound(
            f"there is no provider {name!r} that a key alone is enough for",
            hint=f"known are {', '.join(PRESETS)}; give another one's definition to `with_registered_provider`",
        )
    return found()


@dataclass(frozen=True, slots=True)
class RuntimeParts:
    """Frozen: every `with_*` returns a new one, so that half of one may be kept and used again (RT-2). The order of the
    calls matters only among providers, where the first is the default (RT-7), and where a call says the same thing
    again. Shows no credential (RT-42)."""

    settings: ProviderSettings = ProviderSettings()
    store: Store | Path | Literal["memory"] | None = None
    executor: Executor | None = None
    instances: tuple[Provider | DefinedProvider, ...] = ()
    tools: tuple[Tool, ...] = ()
    file_profile: FileToolProfile = "split"
    skills_dirs: tuple[Path, ...] = ()
    request_options: RequestOptions | None = None
    policy: RuntimePolicy | None = None
    authorizer: Authorizer | None = None
    runtime_identifier: str = "default"
    context: tuple[object, ...] = field(default=(), repr=False)
    hooks: HookChain = field(default_factory=HookChain)
    observers: tuple[RuntimeHook, ...] = (AuditHook(),)
    has_builtins: bool = True
    """Whether there are tools and an embedded provider that nobody asked for (RT-1)."""

    # --- providers ---------------------------------------------------------------------------------------------------

    def with_provider(self, name: str, api_key: str | CredentialSource | None = None) -> Self:
        """Have a known provider: `anthropic`, `gemini`, `openai`, `openrouter`, with its key; `ollama` and `lmstudio`
        need none. Raises `ProviderNotFound` for a key of an unknown one.

        Without a key it is only named: a workspace looks its key up when it is opened.
        """
        named = self if self.settings.provider and api_key is not None else self._naming(name)
        if api_key is None:
            return named
        if isinstance(api_key, str) and named.settings.provider == name:
            named = replace(named, settings=replace(named.settings, api_key=Secret(api_key)))
        return named.with_registered_provider(preset(name), api_key)

    def with_optional_provider(self, name: str, api_key: str | None) -> Self:
        """`with_provider` if there is a key; nothing changes for `None`. An empty key is a key (RT-5)."""
        return self if api_key is None else self.with_provider(name, api_key)

    def with_ollama(self) -> Self:
        """The Ollama of this machine, at its usual port."""
        return self.with_registered_provider(ollama_definition())

    def with_lmstudio(self) -> Self:
        """The LM Studio of this machine, at its usual port."""
        return self.with_registered_provider(lmstudio_definition())

    def with_openai_compatible(self, name: str, base_url: str, api_key: str | CredentialSource | None = None) -> Self:
        """An endpoint that speaks chat/completions, under a name of its own; without a key it is sent none. Raises
        `InvalidBaseUrl`."""
        return self.with_registered_provider(chat_completions_definition(name, base_url), api_key)

    def with_registered_provider(
        self, definition: ProviderDefinition, api_key: str | CredentialSource | None = None
    ) -> Self:
        """A provider by its definition, changed as the endpoint needs it: auth, headers, query, retries (RT-33)."""
        return self._with_instance(DefinedProvider(definition, credentials_of(api_key)))

    def with_provider_instance(self, provider: Provider) -> Self:
        """A ready-made provider, chosen by its id."""
        return self._with_instance(provider)

    def with_api_key(self, key: str) -> Self:
        """The credential for the provider or base URL named, where a workspace asks for one."""
        return replace(self, settings=replace(self.settings, api_key=Secret(key)))

    def with_base_url(self, url: str) -> Self:
        """A compatible endpoint for workspaces."""
        return replace(self, settings=replace(self.settings, base_url=url))

    def with_wire(self, wire: WireName) -> Self:
        """The wire a base URL is spoken to in; `chat_completions` unless said."""
        return replace(self, settings=replace(self.settings, wire=wire))

    def with_model(self, model: str) -> Self:
        """The model to use where nobody says."""
        return replace(self, settings=replace(self.settings, model=model))

    def with_request_options(self, options: RequestOptions) -> Self:
        """What is asked of particular providers, for every session that says nothing else (2.4)."""
        return replace(self, request_options=options)

    def with_responses_transport(self, transport: ResponsesTransport) -> Self:
        """How the Responses wire is spoken. A provider that can't fails its requests; nothing falls back (PV-39)."""
        options = self.request_options or RequestOptions()
        return self.with_request_options(replace(options, responses=replace(options.responses, transport=transport)))

    # --- conversations -----------------------------------------------------------------------------------------------

    def with_store(self, store: Store) -> Self:
        """Keep conversations in this store; no other one is opened (RT-6)."""
        return replace(self, store=store)

    def with_store_dir(self, directory: Path) -> Self:
        """Keep conversations in this directory: it is the store's root (ST-2)."""
        return replace(self, store=directory)

    def with_ephemeral_history(self) -> Self:
        """Keep conversations in memory only (ST-19)."""
        return replace(self, store="memory")

    def with_runtime_identifier(self, identifier: str) -> Self:
        """What this runtime's own conversations are tagged with; `default` unless said. A label, no secret (RT-41)."""
        return replace(self, runtime_identifier=identifier)

    # --- what may happen ---------------------------------------------------------------------------------------------

    def with_policy(self, policy: RuntimePolicy) -> Self:
        """The hard limits of sessions that bring none of their own; without one, no command runs."""
        return replace(self, policy=policy)

    def with_tool_authorizer(self, authorizer: Authorizer) -> Self:
        """Who judges the calls of sessions that bring nobody of their own. At most one; the last one said counts.
        Without one, whatever the policy admits runs."""
        return replace(self, authorizer=authorizer)

    def with_pre_hook(self, hook: PreHook) -> Self:
        """Ask this ahead of every call, behind those named before: it may refuse it or change its input (TL-16)."""
        return self._with_hooks(HookChain(pre=(hook,)))

    def with_post_hook(self, hook: PostHook) -> Self:
        """Ask this about every result, ahead of those named before: it may withhold or change it (TL-19)."""
        return self._with_hooks(HookChain(post=(hook,)))

    def with_execution_hook(self, hook: ExecutionHook) -> Self:
        """Ask this on both sides of every call (TL-17)."""
        return self._with_hooks(HookChain(execution=(hook,)))

    def with_execution_hooks(self, hooks: Iterable[ExecutionHook]) -> Self:
        """Several of them, in their order."""
        return self._with_hooks(HookChain(execution=tuple(hooks)))

    def with_interceptor(self, interceptor: Interceptor, *, timeout_s: float | None = INTERCEPTOR_TIMEOUT_S) -> Self:
        """A guard over every session, in a task and a time limit of its own; what goes wrong in it refuses (HO-19)."""
        return self.with_execution_hook(Intercepting(interceptor, timeout_s))

    def with_hook(self, observer: RuntimeHook) -> Self:
        """Tell this of what happens, too. It changes nothing (TL-28)."""
        return replace(self, observers=(*self.observers, observer))

    def with_hooks(self, observers: Iterable[RuntimeHook]) -> Self:
        """Tell these, and nobody else: the audit trail is one of those replaced (TL-29)."""
        return replace(self, observers=tuple(observers))

    def with_executor(self, executor: Executor) -> Self:
        """Run commands through this instead of the local shell; there is no fallback."""
        return replace(self, executor=executor)

    # --- tools -------------------------------------------------------------------------------------------------------

    def with_tool(self, tool: Tool) -> Self:
        """A host tool for everyone."""
        return replace(self, tools=(*self.tools, tool))

    def with_file_tools(self, profile: FileToolProfile) -> Self:
        """Which file tools there are: exactly those of the profile (C-17). `split` unless said."""
        return replace(self, file_profile=profile)

    def with_skills_dir(self, directory: Path) -> Self:
        """Have the skills below this directory; weaker than those named before."""
        return self.with_skills_dirs((directory,))

    def with_skills_dirs(self, directories: Sequence[Path]) -> Self:
        """Have the skills below these directories, strongest first; the model loads them with `load_skill` (1.7)."""
        return replace(self, skills_dirs=(*self.skills_dirs, *directories))

    def with_context(self, value: object) -> Self:
        """An object for the host's tools, found by its exact type; of two of one type the later counts (RT-11)."""
        return replace(self, context=(*self.context, value))

    # -----------------------------------------------------------------------------------------------------------------

    def _with_hooks(self, more: HookChain) -> Self:
        had = self.hooks
        chain = HookChain((*had.pre, *more.pre), (*had.execution, *more.execution), (*had.post, *more.post))
        return replace(self, hooks=chain)

    def _naming(self, name: str) -> Self:
        return replace(self, settings=replace(self.settings, provider=name))

    def _with_instance(self, instance: Provider | DefinedProvider) -> Self:
        return replace(self, instances=(*self.instances, instance))
