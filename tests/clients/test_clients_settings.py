"""`basisctl connect`: the person's config.json."""

import json
import os
import stat
from pathlib import Path

import pytest

from support.command_line import basisctl


@pytest.fixture
def config(clean_environment: Path) -> Path:
    return clean_environment / "config_home" / "basis" / "config.json"


def test_provider_is_written_privately_and_the_key_is_named(config: Path, workspace: Path) -> None:
    """CF-1: schema 1; a key is never in the file, the variable that holds it is named."""
    done = basisctl("connect", "openai", "--model", "m-1", cwd=workspace)

    assert done.returncode == 0
    assert json.loads(config.read_text()) == {"schema": 1, "provider": "openai", "model": "m-1"}
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    assert os.listdir(config.parent) == ["config.json"]
    assert "workspaces now use openai, model m-1" in done.stderr
    assert "next: basisctl auth login openai (or export OPENAI_API_KEY=…)" in done.stderr


def test_key_that_is_set_is_seen_and_not_shown(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PR-12: no message holds a key."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary-secret")

    done = basisctl("connect", "openai", "--base-url", "http://localhost:1234/v1", cwd=workspace)

    assert "taken from OPENAI_API_KEY, which is set here" in done.stderr
    assert "canary-secret" not in done.stdout + done.stderr


def test_other_settings_are_kept(config: Path, workspace: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text('{"schema": 1, "provider": "openai", "model": "m-1", "effort": "high"}')

    basisctl("connect", "openai", "--base-url", "https://gw.example/v1", cwd=workspace)

    expected = {"provider": "openai", "model": "m-1", "effort": "high", "base_url": "https://gw.example/v1"}
    assert json.loads(config.read_text()) == {"schema": 1, **expected}


def test_model_and_endpoint_of_another_provider_are_forgotten(config: Path, workspace: Path) -> None:
    """A new provider's key must not be sent to the old one's endpoint, and its model would not exist."""
    config.parent.mkdir(parents=True)
    config.write_text('{"schema": 1, "provider": "openai", "model": "m-1", "base_url": "https://gw", "effort": "high"}')

    done = basisctl("connect", "openrouter", cwd=workspace)

    assert json.loads(config.read_text()) == {"schema": 1, "provider": "openrouter", "effort": "high"}
    assert "forgotten, because it belonged to openai: model, base_url" in done.stderr


@pytest.mark.parametrize("text", ["{", '{"schema": 2}', "[]"])
def test_file_that_is_not_understood_is_left_alone(text: str, config: Path, workspace: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text(text)

    done = basisctl("connect", "openai", cwd=workspace)

    assert done.returncode == 2
    assert str(config) in done.stderr
    assert config.read_text() == text


def test_provider_without_a_key_says_so(workspace: Path) -> None:
    assert "ollama needs no key" in basisctl("connect", "ollama", cwd=workspace).stderr
    assert "basisctl pocket install" in basisctl("connect", "pocket", cwd=workspace).stderr


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "openrouter"])
def test_every_vendor_can_be_chosen(provider: str, config: Path, workspace: Path) -> None:
    """PR-5, PR-7."""
    done = basisctl("connect", provider, cwd=workspace)

    assert done.returncode == 0 and json.loads(config.read_text())["provider"] == provider
    assert f"basisctl auth login {provider}" in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "http://gw.example/v1",
        "http://10.0.0.7:8000",
        "http://localhost.example",
        "https://user:word@gw.example",
        "ftp://x",
        "https://",
        "https://:8443/v1",
        "https://gw.example:0/v1",
        "https://gw.example:99999/v1",
        "https://gw .example/v1",
    ],
)
def test_an_endpoint_no_key_may_travel_to_is_refused_at_once(url: str, config: Path, workspace: Path) -> None:
    """PV-63, PR-3: when it is chosen, not with the first prompt; nothing is written."""
    done = basisctl("connect", "openai", "--base-url", url, cwd=workspace)

    assert done.returncode == 2 and not config.exists()
    assert "next: " in done.stderr and "word" not in done.stderr.replace("password", "")


@pytest.mark.parametrize("url", ["http://127.0.0.2:8080/v1", "http://[::1]:1/", "http://localhost:1234"])
def test_an_endpoint_on_this_machine_needs_no_encryption(url: str, workspace: Path) -> None:
    assert basisctl("connect", "openai", "--base-url", url, cwd=workspace).returncode == 0


def test_a_server_that_wants_no_key_may_be_anywhere(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a key is set that would go there (PR-2, PV-63)."""
    arguments = ("connect", "ollama", "--base-url", "http://10.0.0.7:11434")
    assert basisctl(*arguments, cwd=workspace).returncode == 0
    monkeypatch.setenv("BASIS_API_KEY", "x")
    assert basisctl(*arguments, cwd=workspace).returncode == 2


@pytest.mark.parametrize("url", ["http://user:word@127.0.0.1:1", "http://", "ftp://x", "http://h:99999"])
def test_an_address_that_is_none_is_refused_for_a_server_without_a_key_too(
    url: str, config: Path, workspace: Path
) -> None:
    """PR-3: a password in it would be kept in config.json."""
    done = basisctl("connect", "ollama", "--base-url", url, cwd=workspace)
    assert done.returncode == 2 and not config.exists()
    assert "word" not in done.stderr.replace("password", "")


def test_the_way_back_from_an_endpoint_to_the_provider_is_a_blank_base_url(config: Path, workspace: Path) -> None:
    """Without one the endpoint stays: only the model was to be changed."""
    basisctl("connect", "openai", "--base-url", "https://gw.example", "--wire", "responses", cwd=workspace)
    basisctl("connect", "openai", "--model", "m-1", cwd=workspace)
    assert json.loads(config.read_text())["base_url"] == "https://gw.example"

    done = basisctl("connect", "openai", "--base-url", "", cwd=workspace)

    assert json.loads(config.read_text()) == {"schema": 1, "provider": "openai", "model": "m-1"}
    assert "forgotten, because it belonged to https://gw.example: base_url, wire" in done.stderr
    assert basisctl("connect", "openai", "--wire", "responses", cwd=workspace).returncode == 2


def test_another_endpoint_is_not_taken_to_speak_what_the_one_before_did(config: Path, workspace: Path) -> None:
    """PR-4: said for the same one again, the wire stays."""
    for _ in range(2):
        basisctl("connect", "openai", "--base-url", "https://one.example", "--wire", "responses", cwd=workspace)
        basisctl("connect", "openai", "--base-url", "https://one.example", "--model", "m-1", cwd=workspace)
        assert json.loads(config.read_text())["wire"] == "responses"
    basisctl("connect", "openai", "--base-url", "https://two.example", cwd=workspace)
    assert "wire" not in json.loads(config.read_text())


def test_a_configuration_kept_elsewhere_stays_there(config: Path, workspace: Path, tmp_path: Path) -> None:
    """A link, as people who keep such files in a repository have, is followed and stays a link."""
    kept = tmp_path / "kept.json"
    kept.write_text('{"schema": 1, "effort": "high"}')
    config.parent.mkdir(parents=True)
    config.symlink_to(kept)

    basisctl("connect", "openai", cwd=workspace)

    assert config.is_symlink() and json.loads(kept.read_text())["provider"] == "openai"


def test_the_wire_of_an_endpoint_is_kept_with_it(config: Path, workspace: Path) -> None:
    """PR-4: an endpoint may speak any wire; another provider forgets it."""
    basisctl("connect", "openai", "--base-url", "https://gw.example", "--wire", "anthropic_messages", cwd=workspace)
    assert json.loads(config.read_text())["wire"] == "anthropic_messages"
    basisctl("connect", "openrouter", cwd=workspace)
    assert json.loads(config.read_text()) == {"schema": 1, "provider": "openrouter"}
