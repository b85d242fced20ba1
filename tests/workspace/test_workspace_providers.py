"""Which provider is taken, with whose key: explicit over files over environment, and no key sent elsewhere."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from basis_daemon.errors import (
    InvalidBaseUrl,
    MissingCredential,
    NoCompatibleCredential,
    ProviderNotFound,
    ProviderSetupError,
    UnattributedCredential,
    UnknownProvider,
)
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.definition import WireName
from basis_daemon.runtime.providers.registry import PRESETS, VENDORS_OF_WIRES, ProviderChoice, definition_of
from basis_daemon.runtime.runtime import ProviderSettings
from basis_daemon.workspace.config import Config, Setting
from basis_daemon.workspace.credentials import Keychain
from basis_daemon.workspace.provider_names import KEY_VARIABLES, provider_id
from basis_daemon.workspace.providers import Decision, decide_provider

KEY = "sk-canary-77aa"
OTHER_KEY = "sk-canary-88bb"


def decide(
    environment: Mapping[str, str] | None = None,
    *,
    settings: ProviderSettings | None = None,
    config: Config | None = None,
    has_pocket: bool = False,
) -> Decision:
    return decide_provider(
        settings or ProviderSettings(),
        config or Config(),
        Keychain(environment or {}),
        is_pocket_installed=lambda: has_pocket,
    )


def from_file(**fields: str) -> Config:
    """A config whose fields all stand in one global file."""
    place = Path("/g/config.json")
    return Config(**{name: Setting(value, place, "global") for name, value in fields.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize("first", range(len(KEY_VARIABLES)))
def test_the_first_key_found_decides_and_says_which_variable_it_was(first: int) -> None:
    """PR-5: in the order anthropic, openai, gemini, openrouter."""
    order = ("anthropic", "openai", "gemini", "openrouter")
    environment = {f"{name.upper()}_API_KEY": f"{KEY}-{name}" for name in reversed(order[first:])}

    decision = decide(environment)

    name = order[first]
    expected = ProviderChoice(name, Secret(f"{KEY}-{name}"), None, "auto", f"{name.upper()}_API_KEY")
    assert decision.choice == expected and decision.notices == []
    assert definition_of(decision.choice).is_vendor == (name != "openrouter")


def test_a_blank_key_counts_as_unset() -> None:
    """PR-6."""
    assert decide({"OPENAI_API_KEY": " \t", "OPENROUTER_API_KEY": KEY}).choice.provider == "openrouter"


def test_what_the_host_says_beats_the_file_which_beats_the_environment() -> None:
    """PR-1, CF-5."""
    environment = {"OPENAI_API_KEY": KEY, "OPENROUTER_API_KEY": OTHER_KEY}
    config = from_file(provider="openrouter")

    assert decide(environment, config=config).choice == ProviderChoice(
        "openrouter", Secret(OTHER_KEY), None, "auto", "OPENROUTER_API_KEY"
    )
    assert decide(environment, config=config, settings=ProviderSettings(provider="openai")).choice.provider == "openai"


def test_a_base_url_takes_only_the_keys_meant_for_one() -> None:
    """PR-1, PR-2, PR-4: never another provider's variable."""
    others = {"ANTHROPIC_API_KEY": OTHER_KEY, "GEMINI_API_KEY": OTHER_KEY, "OPENROUTER_API_KEY": OTHER_KEY}
    url = {"BASIS_BASE_URL": "https://gw.example/v1", "OPENAI_BASE_URL": "https://other.example"}

    decision = decide({**others, **url, "BASIS_API_KEY": KEY, "OPENAI_API_KEY": OTHER_KEY})

    assert decision.choice == ProviderChoice(
        "openai", Secret(KEY), "https://gw.example/", "chat_completions", "BASIS_BASE_URL"
    )
    assert decision.choice.is_compatible_endpoint
    with pytest.raises(NoCompatibleCredential) as caught:
        decide({**others, **url})
    assert "BASIS_API_KEY" in (caught.value.hint or "")


def test_a_base_url_of_the_host_or_the_file_comes_before_the_environments() -> None:
    """PR-1."""
    environment = {"OPENAI_BASE_URL": "https://env.example", "OPENAI_API_KEY": KEY}

    assert decide(environment).choice.base_url == "https://env.example/"
    assert decide(environment, config=from_file(base_url="https://file.example/")).choice.base_url == (
        "https://file.example/"
    )
    said = ProviderSettings(base_url="https://host.example/v1/", wire="responses", api_key=Secret(OTHER_KEY))
    assert decide(environment, settings=said).choice == ProviderChoice(
        "openai", Secret(OTHER_KEY), "https://host.example/", "responses", "the host"
    )


def test_a_base_url_that_is_none_is_refused_without_repeating_it() -> None:
    """PR-3, PR-12."""
    with pytest.raises(InvalidBaseUrl) as caught:
        decide({"BASIS_BASE_URL": f"localhost:8080/{KEY}"})
    assert KEY not in str(caught.value)


def test_a_named_provider_needs_its_own_key() -> None:
    """PR-5: the error names the variable and who named the provider; never a value (PR-12)."""
    with pytest.raises(MissingCredential) as caught:
        decide({"ANTHROPIC_API_KEY": KEY}, config=from_file(provider="openai"))

    assert "/g/config.json" in str(caught.value) and "OPENAI_API_KEY" in str(caught.value)
    assert caught.value.details == {"provider": "openai", "variable": "OPENAI_API_KEY"}


def test_a_key_must_be_somebodys() -> None:
    """PR-5."""
    with pytest.raises(UnattributedCredential):
        decide(settings=ProviderSettings(api_key=Secret(KEY)))
    said = ProviderSettings(provider="openrouter", api_key=Secret(KEY))
    assert decide({"OPENROUTER_API_KEY": OTHER_KEY}, settings=said).choice.api_key == Secret(KEY)


def test_a_server_on_this_machine_wants_no_key_but_must_be_named() -> None:
    """local-model.md 4: offered, never silently used; named, it needs nothing else."""
    assert decide({"OPENAI_API_KEY": KEY}, config=from_file(provider="ollama")).choice == ProviderChoice(
        "ollama", None, None, "auto", "/g/config.json"
    )
    with_url = decide(
        {"BASIS_BASE_URL": "http://127.0.0.1:8080", "OPENAI_API_KEY": KEY}, config=from_file(provider="lm-studio")
    )
    assert with_url.choice.api_key is None and with_url.choice.base_url == "http://127.0.0.1:8080/"


def test_with_nothing_configured_the_rehearsal_provider_answers_and_says_so() -> None:
    """local-model.md 4: what was decided, why, and how to connect a real model."""
    decision = decide()

    assert decision.choice.provider == "rehearsal" and decision.by_default
    text = " ".join(decision.notices)
    assert "rehearsal" in text and "OPENAI_API_KEY" in text and "config.json" in text and "ollama" in text


def test_with_nothing_configured_an_installed_pocket_model_answers() -> None:
    decision = decide(has_pocket=True)

    assert decision.choice.provider == "pocket" and decision.by_default
    assert "facts wrong" in " ".join(decision.notices)


def test_settings_that_decide_nothing_are_pointed_out() -> None:
    decision = decide({"BASIS_API_KEY": KEY}, config=from_file(model="gpt-5"))

    text = " ".join(decision.notices)
    assert decision.choice.provider == "rehearsal"
    assert "BASIS_API_KEY" in text and "/g/config.json" in text and KEY not in text


@pytest.mark.parametrize("name", ["rehearsal", "pocket", " Rehearsal "])
def test_an_embedded_provider_can_be_named_whatever_else_is_set(name: str) -> None:
    environment = {"OPENAI_API_KEY": KEY, "BASIS_BASE_URL": "https://gw.example"}

    decision = decide(environment, settings=ProviderSettings(provider=name), has_pocket=True)

    assert decision.choice.provider == name.strip().lower() and not decision.by_default
    assert decision.choice.api_key is None and decision.choice.base_url is None


def test_a_pocket_model_that_is_not_installed_can_not_be_had() -> None:
    with pytest.raises(ProviderNotFound) as caught:
        decide(settings=ProviderSettings(provider="pocket"))
    assert "basisctl pocket install" in (caught.value.hint or "")


def test_names_are_accepted_in_any_case_and_spelling() -> None:
    """PR-7."""
    assert [provider_id(name) for name in (" OpenAI", "LM-Studio", "lmstudio", "OLLAMA")] == [
        "openai",
        "lmstudio",
        "lmstudio",
        "ollama",
    ]
    with pytest.raises(UnknownProvider) as caught:
        provider_id("opnai")
    assert "openai" in (caught.value.hint or "")


def test_no_error_or_choice_shows_a_key() -> None:
    """PR-12, 0.3.5."""
    environment = {"OPENAI_API_KEY": KEY, "BASIS_BASE_URL": f"ftp://{KEY}@h", "BASIS_API_KEY": KEY}
    shown = [repr(decide({"OPENAI_API_KEY": KEY}))]
    for said in (ProviderSettings(), ProviderSettings(api_key=Secret(KEY)), ProviderSettings(provider="anthropic")):
        try:
            shown.append(repr(decide(environment, settings=said)))
        except ProviderSetupError as error:
            shown.append(f"{error} {error.hint} {error.details}")
    assert KEY not in " ".join(shown)


@pytest.mark.parametrize(("name", "wire"), [("anthropic", "anthropic_messages"), ("gemini", "gemini_generate_content")])
def test_what_stands_in_for_a_vendor_speaks_its_wire(name: str, wire: str) -> None:
    """PR-4; and none of the vendor's own keys goes there (PR-2)."""
    environment = {f"{name.upper()}_API_KEY": OTHER_KEY, "BASIS_API_KEY": KEY}
    said = ProviderSettings(provider=name, base_url="https://gw.example")

    choice = decide(environment, settings=said).choice

    assert (choice.provider, choice.wire, choice.api_key) == (name, wire, Secret(KEY))
    assert definition_of(choice).base_url == "https://gw.example/"


def test_an_endpoint_speaks_what_it_is_said_to_and_else_what_it_stands_in_for() -> None:
    """PR-4: host over file; chat/completions unless the provider has a wire of its own."""
    environment = {"BASIS_BASE_URL": "https://gw.example", "BASIS_API_KEY": KEY}
    config = from_file(wire="responses")

    assert decide(environment).choice.wire == "chat_completions"
    assert decide(environment, config=config).choice.wire == "responses"
    said = ProviderSettings(wire="anthropic_messages")
    assert decide(environment, config=config, settings=said).choice.wire == "anthropic_messages"
    assert decide({"OPENAI_API_KEY": KEY}, config=config).choice.wire == "auto"


@pytest.mark.parametrize(("wire", "vendor"), VENDORS_OF_WIRES.items())
def test_an_endpoint_of_a_vendors_wire_is_like_the_vendor_and_is_not_it(wire: WireName, vendor: str) -> None:
    """PR-4, PV-62: its headers and abilities, at another address, under the id that was chosen."""
    choice = ProviderChoice("openai", Secret(KEY), "https://gw.example/v1", wire, None)
    found, like = definition_of(choice), PRESETS[vendor]()
    assert (found.id, found.base_url, found.wire) == ("openai", "https://gw.example/", wire)
    assert (found.auth, found.capabilities) == (like.auth, like.capabilities)
    assert found.headers.items() <= like.headers.items()
    assert not found.is_vendor and found.identity != like.identity
