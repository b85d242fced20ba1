"""Stored keys: in a keyring or in a private file, found ahead of every environment, and never anybody else's."""

import asyncio
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import MissingCredential, NoCompatibleCredential
from basis_daemon.redact import Secret
from basis_daemon.runtime.runtime import ProviderSettings, Runtime
from basis_daemon.workspace import keyring_access
from basis_daemon.workspace.config import Config, Setting
from basis_daemon.workspace.connecting import connect
from basis_daemon.workspace.credential_store import CredentialStore, CredentialsUnreadable, Stored
from basis_daemon.workspace.credentials import Keychain, Slot, credentials_of, endpoint_slot, vendor_slot
from basis_daemon.workspace.keyring_access import Keyring, KeyringUnavailable
from basis_daemon.workspace.providers import Decision, decide_provider
from basis_daemon.workspace.workspace import Workspace
from support.keyring_backends import Drawer, Locked, use_backend
from support.model_server import ModelServer, fails, says
from support.sdk import say, stored
from support.workspaces import bounded, sample_repository

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY = "sk-canary-stored-1", "sk-canary-other-2"


@pytest.fixture
def store(tmp_path: Path) -> CredentialStore:
    """A store beside no keyring: what the tests' environment has."""
    return CredentialStore(tmp_path / "data")


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    """A keyring that works, registered the way a person chooses one."""
    with use_backend(Drawer()) as backend:
        yield backend


def decide(keychain: Keychain, *, settings: ProviderSettings | None = None, config: Config | None = None) -> Decision:
    return decide_provider(
        settings or ProviderSettings(), config or Config(), keychain, is_pocket_installed=lambda: False
    )


def written(store: CredentialStore, text: str) -> None:
    """Put `text` where the keys are, as private as they should be."""
    store.path.parent.mkdir(exist_ok=True)
    store.path.write_text(text)
    store.path.chmod(0o600)


# --- the file --------------------------------------------------------------------------------------------------------


def test_a_key_is_kept_where_nobody_else_can_read_it(store: CredentialStore) -> None:
    """Without a keyring: a 0600 file in a 0700 directory, replaced as a whole, with nothing left beside it."""
    assert store.names() == [] and store.find("openai") is None and not store.path.exists()

    source = store.put("openai", Secret(KEY))

    assert source == f"the credentials file {store.path}"
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert os.listdir(store.path.parent) == [store.path.name]
    found = CredentialStore(store.path.parent).find("openai")
    assert found is not None and found.key == Secret(KEY) and found.source == source


def test_a_forgotten_key_is_gone_and_the_others_stay(store: CredentialStore) -> None:
    store.put("openai", Secret(KEY))
    store.put("https://gw.example:443", Secret(OTHER_KEY))

    assert store.remove("openai") and not store.remove("openai")

    assert store.names() == ["https://gw.example:443"]
    assert KEY not in store.path.read_text()


@pytest.mark.skipif(os.name != "posix", reason="modes are of no account there")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_others_can_read_is_not_used_and_says_how_to_mend_it(store: CredentialStore, mode: int) -> None:
    """PR-12: the message names the file and its mode, and no key."""
    store.put("openai", Secret(KEY))
    store.path.chmod(mode)

    for use in (lambda: store.find("openai"), store.names, lambda: store.put("gemini", Secret(KEY))):
        with pytest.raises(CredentialsUnreadable) as caught:
            use()
        assert f"{mode:04o}" in str(caught.value) and f"chmod 600 {store.path}" in (caught.value.hint or "")
        assert KEY not in f"{caught.value}{caught.value.hint}"

    store.path.chmod(0o600)
    assert store.find("openai") is not None


@pytest.mark.parametrize("text", ["", "{", "[]", f'"{KEY}"', f'{{"schema": "{KEY}"}}', f'{{"credentials": "{KEY}"}}'])
def test_a_file_that_is_none_is_left_alone_and_not_quoted(store: CredentialStore, text: str) -> None:
    written(store, text)

    with pytest.raises(CredentialsUnreadable) as caught:
        store.put("openai", Secret(OTHER_KEY))

    assert KEY not in f"{caught.value}{caught.value.hint}" and caught.value.__cause__ is None
    assert store.path.read_text() == text


@pytest.mark.parametrize("schema", [7, 0, -1])
def test_a_file_of_another_schema_is_left_alone(store: CredentialStore, schema: int) -> None:
    written(store, json.dumps({"schema": schema, "credentials": {}}))
    with pytest.raises(CredentialsUnreadable, match=f"schema {schema}"):
        store.put("openai", Secret(KEY))
    assert KEY not in store.path.read_text()


@pytest.mark.parametrize("entry", [{}, {"secret": ""}, {"secret": " \n"}])
def test_a_blank_key_in_the_file_is_none_that_is_sent_and_can_be_replaced(
    store: CredentialStore, entry: dict[str, str]
) -> None:
    """PR-6: blank is not set. The others of the file are used all the same."""
    name = "https://gw.example:443"
    written(store, json.dumps({"schema": 1, "credentials": {name: entry, "openai": {"secret": KEY}}}))
    with pytest.raises(CredentialsUnreadable, match="blank key") as caught:
        store.find(name)
    assert f"basisctl auth login --base-url {name}" in (caught.value.hint or "")
    found = store.find("openai")
    assert found is not None and found.key == Secret(KEY)
    store.put(name, Secret(OTHER_KEY))
    assert store.find(name) is not None


@pytest.mark.parametrize("kind", ["fifo", "directory", "link to itself"])
def test_what_is_no_file_is_told_and_waited_for_by_nobody(store: CredentialStore, kind: str) -> None:
    store.path.parent.mkdir()
    match kind:
        case "fifo":
            os.mkfifo(store.path)
        case "directory":
            store.path.mkdir()
        case _:
            store.path.symlink_to(store.path)
    for use in (lambda: store.find("openai"), store.names, lambda: store.put("openai", Secret(KEY))):
        with pytest.raises(CredentialsUnreadable, match="can't be read"):
            use()


def test_a_file_that_is_kept_elsewhere_stays_there(store: CredentialStore, tmp_path: Path) -> None:
    """A link to it, on an encrypted disk for example, is followed and stays a link."""
    store.path.parent.mkdir()
    elsewhere = tmp_path / "vault.json"
    store.path.symlink_to(elsewhere)

    store.put("openai", Secret(KEY))

    assert store.path.is_symlink() and KEY in elsewhere.read_text()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o600 and os.listdir(store.path.parent) == [store.path.name]


def test_what_a_writer_that_was_killed_has_left_is_cleared_away(store: CredentialStore) -> None:
    """It holds a key: storing another clears it, and so does forgetting one, even one that isn't there."""
    leftover = store.path.with_name(".credentials.json.new")
    uses: list[Callable[[], object]] = [lambda: store.put("openai", Secret(KEY)), lambda: store.remove("gemini")]
    for use in uses:
        leftover.parent.mkdir(exist_ok=True)
        leftover.write_text(f'{{"schema": 1, "credentials": {{"gemini": {{"secret": "{OTHER_KEY}')
        use()
        assert os.listdir(store.path.parent) == [store.path.name]
    assert store.names() == ["openai"]


@pytest.mark.parametrize("stores", [1, 4])
def test_keys_stored_at_the_same_time_are_all_kept(store: CredentialStore, stores: int) -> None:
    """Whether through one store or through several, as several processes have."""
    names = [f"https://host-{number}.example:443" for number in range(24)]
    among = [store, *(CredentialStore(store.path.parent) for _ in range(stores - 1))]
    threads = [
        threading.Thread(target=among[number % stores].put, args=(name, Secret(name)))
        for number, name in enumerate(names)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.names() == sorted(names)


# --- the keyring -----------------------------------------------------------------------------------------------------


def test_a_keyring_is_used_where_there_is_one(store: CredentialStore, drawer: Drawer) -> None:
    """The file then says only that the key is there."""
    assert store.put("openai", Secret(KEY)) == "the keyring"

    assert drawer.kept == {(keyring_access.SERVICE, "openai"): KEY}
    assert json.loads(store.path.read_text()) == {"schema": 1, "credentials": {"openai": {"keyring": True}}}
    found = CredentialStore(store.path.parent).find("openai")
    assert found is not None and found.key == Secret(KEY) and found.source == "the keyring"
    assert store.remove("openai") and drawer.kept == {}


def test_a_key_that_moves_is_in_one_place_only(store: CredentialStore, drawer: Drawer) -> None:
    store.put("openai", Secret(KEY))
    store.put("openai", Secret(OTHER_KEY), in_file=True)
    assert drawer.kept == {} and OTHER_KEY in store.path.read_text()

    store.put("openai", Secret(KEY))
    assert OTHER_KEY not in store.path.read_text() and len(drawer.kept) == 1


def test_a_key_changed_in_the_keyring_through_the_store_holds_at_once(store: CredentialStore, drawer: Drawer) -> None:
    """And a keyring is not asked for every request."""
    store.put("openai", Secret(KEY))
    assert [store.find("openai"), store.find("openai")][1] is not None
    assert drawer.reads == 1
    store.put("openai", Secret(OTHER_KEY))
    found = store.find("openai")
    assert found is not None and found.key == Secret(OTHER_KEY)


def test_a_key_somebody_took_out_of_the_keyring_is_missed(store: CredentialStore, drawer: Drawer) -> None:
    store.put("openai", Secret(KEY))
    drawer.kept.clear()
    with pytest.raises(CredentialsUnreadable, match="not there any more") as caught:
        CredentialStore(store.path.parent).find("openai")
    assert "basisctl auth login openai" in (caught.value.hint or "")


def test_a_keyring_that_refuses_is_no_reason_to_write_the_key_elsewhere(store: CredentialStore, drawer: Drawer) -> None:
    drawer.refuses = True
    with pytest.raises(KeyringUnavailable) as caught:
        store.put("openai", Secret(KEY))
    assert KEY not in f"{caught.value}{caught.value.hint}" and "in a file" in (caught.value.hint or "")
    assert not store.path.exists()


def test_a_locked_keyring_holds_nobody_up_twice(tmp_path: Path) -> None:
    """Bounded: the first caller waits for its time, those behind it are told at once, and it heals by itself."""
    with use_backend(Locked()) as backend:
        keyring = Keyring(reading_timeout_s=0.05)
        with pytest.raises(KeyringUnavailable, match="locked"):
            keyring.get("openai")
        assert backend.asked.wait(5)
        with pytest.raises(KeyringUnavailable, match="locked"):
            keyring.get("openrouter")
        backend.open.set()
        backend.answered.wait(5)
        while True:  # until the thread has put its late answer down
            try:
                assert keyring.get("openai") == "opened"
                break
            except KeyringUnavailable:
                continue


def test_a_keyring_that_waits_for_its_password_holds_up_nobody_whose_key_is_in_the_file(store: CredentialStore) -> None:
    store.put("openai", Secret(KEY), in_file=True)
    with use_backend(Locked()) as backend:
        storing = threading.Thread(target=store.put, args=("gemini", Secret(OTHER_KEY)))
        storing.start()
        assert backend.asked.wait(5)
        found: list[Stored | None] = []
        looking = threading.Thread(target=lambda: found.append(store.find("openai")))
        looking.start()
        looking.join(5)
        backend.open.set()
        storing.join(5)
        looking.join(5)
    assert len(found) == 1 and found[0] is not None and found[0].key == Secret(KEY)


def test_where_nothing_is_in_a_keyring_none_is_loaded(store: CredentialStore) -> None:
    store.put("openai", Secret(KEY), in_file=True)
    with use_backend(Locked()) as backend:
        assert CredentialStore(store.path.parent).find("openai") is not None
        assert not backend.asked.is_set()


# --- whose key it is -------------------------------------------------------------------------------------------------


def test_a_stored_key_goes_ahead_of_a_clients_and_that_ahead_of_the_daemons(store: CredentialStore) -> None:
    """protocol.md 6; every source says its name."""
    keychain = Keychain({"OPENAI_API_KEY": "k2"}, "nvim", store, {"OPENAI_API_KEY": "k3"})
    store.put("openai", Secret("k1"))

    found = list(keychain.source(vendor_slot("openai")).every())

    assert [each.key.reveal() for each in found] == ["k1", "k2", "k3"]
    assert [each.kind for each in found] == ["store", "workspace_environment", "daemon_environment"]
    assert [each.source for each in found] == [
        f"the credentials file {store.path}",
        "OPENAI_API_KEY sent by nvim",
        "OPENAI_API_KEY in the daemon's own environment",
    ]


def test_with_nothing_named_the_nearer_source_decides_and_then_the_order_of_providers(store: CredentialStore) -> None:
    """PR-5: what a person stored says more than a variable that happens to be set."""
    environment, fallback = {"OPENAI_API_KEY": KEY, "OPENROUTER_API_KEY": KEY}, {"OPENAI_API_KEY": KEY}
    assert decide(Keychain(fallback=fallback)).choice.provider == "openai"
    assert decide(Keychain({"OPENROUTER_API_KEY": KEY}, fallback=fallback)).choice.provider == "openrouter"
    assert decide(Keychain(environment)).choice.provider == "openai"

    store.put("openrouter", Secret(OTHER_KEY))

    choice = decide(Keychain(environment, store=store)).choice
    assert (choice.provider, choice.api_key) == ("openrouter", Secret(OTHER_KEY))
    assert choice.source == f"the credentials file {store.path}"


def test_a_base_url_gets_its_own_key_and_never_a_vendors(store: CredentialStore) -> None:
    """PR-2, PV-62: a stored key belongs to one origin."""
    store.put("openai", Secret(KEY))
    environment = {"BASIS_BASE_URL": "https://gw.example/v1"}
    with pytest.raises(NoCompatibleCredential) as caught:
        decide(Keychain(environment, store=store))
    assert "basisctl auth login --base-url https://gw.example" in (caught.value.hint or "")

    store.put(endpoint_slot("openai", "https://gw.example/other").name, Secret(OTHER_KEY))

    assert decide(Keychain({**environment, "BASIS_API_KEY": "x"}, store=store)).choice.api_key == Secret(OTHER_KEY)
    elsewhere = {"BASIS_BASE_URL": "https://gw.example:8443/v1", "BASIS_API_KEY": "mine"}
    assert decide(Keychain(elsewhere, store=store)).choice.api_key == Secret("mine")
    assert decide(Keychain({}, store=store)).choice.api_key == Secret(KEY)


def test_a_server_that_wants_no_key_may_have_one_all_the_same(store: CredentialStore) -> None:
    said = ProviderSettings(provider="ollama", base_url="https://ollama.example")
    assert decide(Keychain({"OPENAI_API_KEY": KEY}, store=store), settings=said).choice.api_key is None
    store.put("https://ollama.example:443", Secret(OTHER_KEY))
    assert decide(Keychain(store=store), settings=said).choice.api_key == Secret(OTHER_KEY)


def test_what_the_host_gives_is_not_mixed_with_what_is_found(store: CredentialStore) -> None:
    """PR-5."""
    store.put("openai", Secret(KEY))
    said = ProviderSettings(provider="openai", api_key=Secret(OTHER_KEY))
    choice = decide(Keychain({"OPENAI_API_KEY": KEY}, store=store), settings=said).choice
    assert (choice.api_key, choice.source) == (Secret(OTHER_KEY), "the host")


def test_a_named_provider_without_a_key_says_both_ways_to_give_it_one(store: CredentialStore) -> None:
    """PR-5, PR-12."""
    config = Config(provider=Setting("openai", Path("/g/config.json"), "global"))
    with pytest.raises(MissingCredential) as caught:
        decide(Keychain({"OPENROUTER_API_KEY": KEY}, store=store), config=config)
    assert "basisctl auth login openai" in (caught.value.hint or "") and "OPENAI_API_KEY" in (caught.value.hint or "")
    assert caught.value.details == {"provider": "openai", "variable": "OPENAI_API_KEY"}


def test_of_a_daemons_own_environment_only_keys_are_kept() -> None:
    """DM-23."""
    assert credentials_of({"OPENAI_API_KEY": KEY, "PATH": "/bin", "AWS_SECRET": "x"}) == {"OPENAI_API_KEY": KEY}


def test_a_keychain_shows_no_key() -> None:
    """PR-12, 0.3.5."""
    keychain = Keychain({"OPENAI_API_KEY": KEY}, "nvim", None, {"OPENAI_API_KEY": OTHER_KEY})
    shown = f"{keychain} {keychain.source(vendor_slot('openai'))} {decide(keychain)}"
    assert KEY not in shown and OTHER_KEY not in shown


@given(
    stored_for=st.dictionaries(st.sampled_from(["openai", "openrouter", "https://a.example:443"]), st.just("stored")),
    sent=st.dictionaries(st.sampled_from(["OPENAI_API_KEY", "OPENROUTER_API_KEY", "BASIS_API_KEY"]), st.just("sent")),
    own=st.dictionaries(st.sampled_from(["OPENAI_API_KEY", "OPENROUTER_API_KEY", "BASIS_API_KEY"]), st.just("own")),
    slot=st.sampled_from(
        [vendor_slot("openai"), vendor_slot("openrouter"), endpoint_slot("openai", "https://a.example")]
    ),
)
def test_a_slot_is_only_ever_given_keys_of_its_own(
    stored_for: dict[str, str], sent: dict[str, str], own: dict[str, str], slot: Slot, tmp_path_factory: Any
) -> None:
    """PR-2, PV-62: whatever is set where, no key crosses over, and the first one found is of the nearest source."""
    store = CredentialStore(tmp_path_factory.mktemp("store"))
    for name in stored_for:
        store.put(name, Secret(f"stored:{name}"))
    mark = {"sent": sent, "own": own}
    environments = {word: {name: f"{word}:{name}" for name in names} for word, names in mark.items()}
    keys = [
        found.key.reveal()
        for found in Keychain(environments["sent"], None, store, environments["own"]).source(slot).every()
    ]
    allowed = {f"stored:{slot.name}", *(f"{word}:{name}" for word in mark for name in slot.variables)}
    assert set(keys) <= allowed
    assert keys == sorted(keys, key=lambda key: ("stored", "sent", "own").index(key.partition(":")[0]))
    assert bool(keys) == (slot.name in stored_for or any(name in {**sent, **own} for name in slot.variables))


# --- requests --------------------------------------------------------------------------------------------------------


async def test_a_changed_key_is_used_for_the_next_request_of_a_conversation_already_open(tmp_path: Path) -> None:
    """RT-35 in place of PR-11 and DM-12: no new runtime, no reopening, nothing restarted. A wrong key's error names
    where it is from."""
    store = CredentialStore(tmp_path / "data")
    repo = sample_repository(tmp_path / "repo")
    async with ModelServer(says("One."), fails(401), says("Three.")) as server:
        slot = endpoint_slot("openai", server.base_url)
        await asyncio.to_thread(store.put, slot.name, Secret("sk-first-000001"))
        builder = Workspace.builder(repo).with_runtime_builder(stored(tmp_path / "store")).with_credentials(store)
        builder = bounded(builder, {"BASIS_BASE_URL": server.base_url}).with_model("scripted")
        async with await builder.open() as workspace:
            run = workspace.prepare()
            assert (await say(run, "One?")).report.succeeded
            await asyncio.to_thread(store.put, slot.name, Secret("sk-second-00002"))
            refused = await say(run, "Two?")
            await asyncio.to_thread(store.put, slot.name, Secret("sk-third-000003"))
            assert (await say(run, "Three?")).report.succeeded
            await asyncio.to_thread(store.remove, slot.name)
            missing = await say(run, "Four?")
            run.close()
    assert [each.headers["authorization"] for each in server.requests] == [
        "Bearer sk-first-000001",
        "Bearer sk-second-00002",
        "Bearer sk-third-000003",
    ]
    assert refused.report.status == "error" and "sk-second" not in str(refused)
    assert missing.report.status == "error" and "no key is stored" in (missing.report.error or "")


async def test_equal_keychains_share_a_provider_and_different_ones_do_not(tmp_path: Path) -> None:
    """RT-5: what is shared is what is equal, sources and all; a conversation never gets another workspace's key."""
    runtime = Runtime.builder().with_ephemeral_history().build()
    async with runtime:
        chains = [
            Keychain({"OPENAI_API_KEY": key, "OTHER": other}) for key, other in (("a", "1"), ("a", "2"), ("b", "1"))
        ]
        found = [(await connect(runtime, ProviderSettings(), Config(), chain))[0].provider for chain in chains]
    assert found[0] is found[1] and found[0] is not found[2]
