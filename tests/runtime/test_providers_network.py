"""Proxies and certificates, as the usual variables say (`providers/network.py`): failure and security of 2.11, 2.13."""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.providers.base import Request
from basis_daemon.runtime.providers.errors import (
    InvalidRequest,
    ProviderError,
    ProxyRefused,
    TransportError,
    UntrustedServer,
)
from basis_daemon.runtime.providers.network import Network, Route
from basis_daemon.runtime.providers.registry import ProviderChoice, ProviderRegistry
from basis_daemon.runtime.runtime import ProviderSettings, Runtime
from basis_daemon.workspace.config import Config
from basis_daemon.workspace.connecting import connect
from basis_daemon.workspace.credentials import Keychain
from support.model_server import ModelServer, says
from support.way_out import Authority, Proxy, new_authority, tls_in_front_of

pytestmark = pytest.mark.anyio
HELLO = Request("m", [user("hello")])
PROXIES = {"HTTP_PROXY": "http://plain:1", "HTTPS_PROXY": "http://secure:2"}


# --- what the variables mean ------------------------------------------------------------------------------------------


def proxy_for(url: str, **variables: str) -> str | None:
    return Network.of(variables).route(url).via


def test_scheme_decides_which_proxy_is_used() -> None:
    assert proxy_for("http://h/", **PROXIES) == "http://plain:1"
    assert proxy_for("https://h/", **PROXIES) == "http://secure:2"
    assert proxy_for("https://h/", HTTP_PROXY="http://plain:1") is None
    assert proxy_for("https://h/", ALL_PROXY="http://any:3") == "http://any:3"
    assert proxy_for("https://h/", **PROXIES, ALL_PROXY="http://any:3") == "http://secure:2"


def test_small_letters_go_first_and_a_scheme_may_be_left_out() -> None:
    assert proxy_for("https://h/", HTTPS_PROXY="http://large:1", https_proxy="small:2") == "http://small:2"


@pytest.mark.parametrize(
    "url", ["http://localhost:11434/", "http://127.0.0.1/", "http://[::1]:1/", "http://a.localhost/"]
)
def test_this_machine_is_never_reached_through_a_proxy(url: str) -> None:
    assert proxy_for(url, **PROXIES) is None


@pytest.mark.parametrize(
    ("exceptions", "url", "is_direct"),
    [
        ("*", "https://h.example/", True),
        ("example", "https://h.example/", True),
        (".example", "https://h.example/", True),
        ("*.example", "https://h.example/", True),
        ("h.example", "https://h.example/", True),
        ("H.Example", "https://h.EXAMPLE/", True),
        ("other, h.example ,", "https://h.example/", True),
        ("xample", "https://h.example/", False),
        ("a.h.example", "https://h.example/", False),
        ("h.example:8443", "https://h.example:8443/", True),
        ("h.example:8443", "https://h.example/", False),
        ("10.0.0.0/8", "https://10.1.2.3/", True),
        ("10.1.2.3", "https://10.1.2.3/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("fd00::/8", "https://[fd00::7]/", True),
        ("[fd00::7]", "https://[fd00::7]/", True),
        ("", "https://h.example/", False),
    ],
)
def test_exceptions_name_hosts_domains_ports_and_subnets(exceptions: str, url: str, is_direct: bool) -> None:
    assert (proxy_for(url, **PROXIES, NO_PROXY=exceptions) is None) is is_direct


def test_who_opens_the_workspace_is_heard_before_the_process() -> None:
    """A daemon started at login has next to nothing in its environment; proxies and certificates stand on their own."""
    shell, login = {"HTTPS_PROXY": "http://shell:1"}, {"HTTPS_PROXY": "http://login:2", "SSL_CERT_FILE": "/login.pem"}
    assert Network.of(shell, login).route("https://h/") == Route(
        Secret("http://shell:1"), "/login.pem", "SSL_CERT_FILE"
    )
    assert Network.of({}, login).route("https://h/").via == "http://login:2"
    assert Network.of({"NO_PROXY": "*"}, login).route("https://h/").via is None
    assert Network.of({"NO_PROXY": "*"}, {}) == Network(direct=("*",)) and Network.of({}, {}) == Network()


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_every_usual_variable_names_certificates(name: str) -> None:
    assert Network.of({name: "/ca"}).route("https://h/") == Route(None, "/ca", name)


def test_password_of_a_proxy_is_not_shown() -> None:
    """CV-9."""
    network = Network.of({"HTTPS_PROXY": "http://me:pass-word@proxy:8080"})
    route = network.route("https://h/")
    assert "pass-word" not in repr(network) + repr(route) and route.via == "http://proxy:8080"


# --- over real sockets ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes this test's certificates")
    return new_authority(tmp_path_factory.mktemp("authority"), "model.test")


@pytest.fixture
async def tls_port(server: ModelServer, authority: Authority) -> AsyncIterator[int]:
    server.script(says("by TLS"), says("again"))
    async with tls_in_front_of(urlsplit(server.base_url).port or 0, authority) as port:
        yield port


async def ask(base_url: str, environment: dict[str, str], key: str | None = "sk-key") -> str:
    """What the provider answers that a workspace opened with `environment` reaches at `base_url`."""
    async with AsyncExitStack() as stack:
        registry = ProviderRegistry()
        stack.push_async_callback(registry.aclose)
        choice = ProviderChoice(
            "gateway", Secret(key) if key else None, base_url, "chat_completions", None, Network.of(environment)
        )
        with anyio.fail_after(10):
            events = [event async for event in registry.get(choice).stream(HELLO)]
    return "".join([getattr(event, "text", "") for event in events])


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_authority_of_ones_own_is_trusted_once_it_is_named(
    name: str, tls_port: int, authority: Authority
) -> None:
    assert await ask(f"https://127.0.0.1:{tls_port}/", {name: str(authority.certificate)}) == "by TLS"


async def test_server_nobody_vouches_for_is_refused_at_once_and_the_variable_named(
    tls_port: int, server: ModelServer
) -> None:
    """Trying again would not help; the key has not left."""
    with pytest.raises(UntrustedServer, match=f"https://127.0.0.1:{tls_port} is not trusted") as caught:
        await ask(f"https://127.0.0.1:{tls_port}/", {"NO_PROXY": "x"})
    assert not caught.value.is_transient and "SSL_CERT_FILE" in (caught.value.hint or "")
    assert server.requests == []


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_certificates_that_cannot_be_read_are_named_with_their_variable(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        await anyio.Path(path).write_text(content)
    with pytest.raises(InvalidRequest, match=f"SSL_CERT_FILE names {path}"):
        await ask("https://127.0.0.1:9/", {"SSL_CERT_FILE": str(path)})


async def test_vendor_is_reached_through_a_proxy_that_wants_a_password(
    tls_port: int, authority: Authority, server: ModelServer
) -> None:
    """CONNECT: the proxy sees the name and the port, and neither key nor conversation."""
    async with Proxy({"model.test:443": tls_port}, password="me:pass-word").running() as proxy:
        environment = {
            "HTTPS_PROXY": proxy.url.replace("//", "//me:pass-word@"),
            "SSL_CERT_FILE": str(authority.certificate),
        }
        assert await ask("https://model.test/", environment) == "by TLS"
    assert proxy.asked == ["CONNECT model.test:443"]
    assert server.requests[0].headers["authorization"] == "Bearer sk-key"
    assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [("407 Proxy Authentication Required", ProxyRefused), ("403 Forbidden", ProxyRefused), ("502 Bad", TransportError)],
)
async def test_proxy_that_refuses_is_named_without_its_password(refusal: str, kind: type[ProviderError]) -> None:
    """RT-38: who lets nobody through is not asked again; one that can't reach the server may be."""
    async with Proxy({}, refusal=refusal).running() as proxy:
        with pytest.raises(kind, match="refused") as caught:
            await ask("https://model.test/", {"HTTPS_PROXY": proxy.url.replace("//", "//me:pass-word@")})
    assert type(caught.value) is kind and caught.value.is_transient is (kind is TransportError)
    assert proxy.url in str(caught.value) and "pass-word" not in str(caught.value) + str(caught.value.hint)


async def test_proxy_that_is_not_there_is_the_one_named() -> None:
    with pytest.raises(TransportError, match=r"by way of the proxy http://127\.0\.0\.1:9\)") as caught:
        await ask("https://model.test/", {"HTTPS_PROXY": "http://127.0.0.1:9"})
    assert caught.value.is_transient


@pytest.mark.parametrize("url", ["socks5://me:pass-word@127.0.0.1:1", "ftp://127.0.0.1:1", "http://", "http://[::1"])
async def test_proxy_of_another_kind_is_an_error_that_says_what_to_set(url: str) -> None:
    with pytest.raises(InvalidRequest, match="proxy") as caught:
        await ask("https://model.test/", {"ALL_PROXY": url})
    assert "HTTPS_PROXY" in (caught.value.hint or "") and "pass-word" not in str(caught.value)


async def test_workspace_goes_the_way_its_client_says(
    tls_port: int, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment sent with `workspace/open` counts, and the daemon's own where that says nothing."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    async with Proxy({"model.test:443": tls_port}).running() as proxy:
        environment = {"BASIS_BASE_URL": "https://model.test/", "BASIS_API_KEY": "sk-key", "HTTPS_PROXY": proxy.url}
        async with Runtime.builder().with_ephemeral_history().build() as runtime:
            connection, _ = await connect(runtime, ProviderSettings(), Config(), Keychain(environment))
            with anyio.fail_after(10):
                events = [event async for event in connection.provider.stream(HELLO)]
        assert "by TLS" in [getattr(event, "text", "") for event in events] and len(proxy.asked) == 1
