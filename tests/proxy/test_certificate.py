"""The base-URL port with a certificate of its own: who reaches it, what it refuses, how a renewed one comes in."""

import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from examples.practice.certificate import Certificate, make_certificate
from proxy.certificate import OwnCertificate
from proxy.telemetry.counters import Counters
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider.answer import ANSWER
from tests.support.upstream import Upstream
from trajectory.errors import ConfigurationError
from trajectory.exchange import ExchangeOutcome

ORDER = ["certificate", "certificate_key"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("own"))


def settings(upstream: Upstream, files: Certificate, **more: Any) -> dict[str, Any]:
    return {
        "routes": [{"name": "openai", "upstream": upstream.url}],
        "certificate": str(files.cert),
        "certificate_key": str(files.key),
        "forward_port": None,  # the authority is not needed
        **more,
    }


@pytest.fixture(scope="module")
def gateway(
    upstream: Upstream, files: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("secure"), settings(upstream, files)) as running:
        yield running


def secure(gateway: GatewayProcess) -> str:
    return gateway.url.replace("http://127.0.0.1", "https://localhost")


def port(gateway: GatewayProcess) -> int:
    return int(gateway.url.rpartition(":")[2])


def trusting(files: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.ca)


def greeted(
    gateway: GatewayProcess, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSocket:
    """Return a connection after its handshake, with one answer read: its session came with that."""
    opened = socket.create_connection(("localhost", port(gateway)), 30)
    wrapped = context.wrap_socket(opened, server_hostname="localhost", session=session)
    ask(wrapped, gateway)
    return wrapped


def ask(opened: ssl.SSLSocket, gateway: GatewayProcess) -> None:
    head = f"POST /openai/echo HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {gateway.key}\r\n"
    opened.sendall(f"{head}Content-Length: 1\r\n\r\nx".encode())
    assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")


def until(done: Any) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("http2", [False, True], ids=["http/1.1", "http/2"])
def test_a_client_that_trusts_it_is_served(
    gateway: GatewayProcess, files: Certificate, upstream: Upstream, http2: bool
) -> None:
    headers = {"authorization": f"Bearer {gateway.key}", "x-headrace-debug": "1"}
    with httpx.Client(verify=trusting(files), headers=headers, http2=http2) as client:
        for body in (b"one", b"two"):
            answer = client.post(f"{secure(gateway)}/openai/echo", content=body)
            assert (answer.status_code, answer.content) == (200, body)
            assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
            exchange = gateway.exchange()
            assert (exchange.outcome, exchange.mode) == (ExchangeOutcome.COMPLETE, "base_url")
            assert exchange.request.body == body == upstream.seen[-1].body
    plain = gateway.settings.get("listener", gateway_listener()) == "plain" and not http2
    assert answer.headers["x-headrace-listener"] == ("plain" if plain else "mitmproxy")


def gateway_listener() -> str:
    from tests.proxy.gateway_process import LISTENER

    return LISTENER.get()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_openai_sdk_reaches_it_with_a_file_of_authorities(
    gateway: GatewayProcess, files: Certificate, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    messages: Any = [{"role": "user", "content": "hello"}]
    with openai.OpenAI(
        base_url=f"{secure(gateway)}/openai/v1", api_key=gateway.key, max_retries=0
    ) as sdk:
        if stream:
            deltas = sdk.chat.completions.create(model="m", messages=messages, stream=True)
            said = "".join(c.delta.content or "" for each in deltas for c in each.choices)
        else:
            answer = sdk.chat.completions.create(model="m", messages=messages)
            said = answer.choices[0].message.content or ""
    assert said == ANSWER
    assert gateway.exchange().outcome == ExchangeOutcome.COMPLETE


def test_who_does_not_trust_it_hears_no_answer_and_is_counted(gateway: GatewayProcess) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{secure(gateway)}/openai/v1/models", trust_env=False)
    until(lambda: 'headrace_tls_failures_total{sni="localhost"}' in metrics(gateway))


def metrics(gateway: GatewayProcess) -> str:
    return httpx.get(f"{gateway.admin}/metrics", trust_env=False).text


def test_a_request_in_clear_gets_no_answer(gateway: GatewayProcess, upstream: Upstream) -> None:
    before = len(upstream.seen)
    with socket.create_connection(("localhost", port(gateway)), 30) as client:
        client.sendall(b"GET /openai/v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
        heard = client.recv(65536)
        assert not heard.startswith(b"HTTP/")
    assert len(upstream.seen) == before


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_an_old_version_of_tls_is_refused(
    gateway: GatewayProcess, files: Certificate, version: ssl.TLSVersion
) -> None:
    context = trusting(files)
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with (
        socket.create_connection(("localhost", port(gateway)), 90) as opened,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(opened, server_hostname="localhost")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_also_over_a_renewal(
    upstream: Upstream, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    files = make_certificate(tmp_path / "files")
    context = trusting(files)
    context.minimum_version = context.maximum_version = version
    with GatewayProcess(tmp_path / "home", settings(upstream, files)) as gateway:
        with greeted(gateway, context) as first:
            session = first.session
            assert not first.session_reused
        with greeted(gateway, context, session) as again:
            assert again.session_reused
            session = again.session
        before = served(gateway)
        renew(files, tmp_path)
        until(lambda: served(gateway) != before)
        with greeted(gateway, context, session) as later:
            assert later.session_reused


def served(gateway: GatewayProcess) -> str:
    return ssl.get_server_certificate(("localhost", port(gateway)), timeout=30)


def renew(files: Certificate, folder: Path) -> Certificate:
    """Put other files in the place of these, one after the other, as programs that renew them do."""
    fresh = make_certificate(folder / "fresh")
    for one, other in zip(fresh, files, strict=True):
        one.replace(other)
    return fresh


def test_a_renewed_certificate_is_served_to_the_next_connection(
    upstream: Upstream, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path / "files")
    old = trusting(files)
    with GatewayProcess(tmp_path / "home", settings(upstream, files)) as gateway:
        with greeted(gateway, old) as stays:
            before = served(gateway)
            renew(files, tmp_path)
            until(lambda: served(gateway) != before)
            greeted(gateway, trusting(files)).close()
            ask(stays, gateway)
        shown = dict(line.rsplit(" ", 1) for line in metrics(gateway).splitlines())
        days = float(shown["headrace_certificate_seconds_left"]) / 86_400
        assert 6 < days < 8
        assert "serving the certificate that expires on" in gateway.log.read_text()


def test_one_that_cannot_be_used_leaves_the_last_in_place(
    upstream: Upstream, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path / "files")
    with GatewayProcess(tmp_path / "home", settings(upstream, files)) as gateway:
        before = served(gateway)
        files.cert.write_bytes(b"nothing")
        until(lambda: "holds no certificate" in gateway.log.read_text())
        assert served(gateway) == before
        greeted(gateway, trusting(files)).close()
        assert gateway.log.read_text().count("the one in use stays") == 1


def test_a_websocket_passes_inside_the_tls(gateway: GatewayProcess, files: Certificate) -> None:
    context = trusting(files)
    with (
        socket.create_connection(("localhost", port(gateway)), 90) as opened,
        context.wrap_socket(opened, server_hostname="localhost") as client,
    ):
        client.sendall(
            b"GET /openai/nowhere HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_tls_within_the_tls_is_no_request(gateway: GatewayProcess, files: Certificate) -> None:
    context = trusting(files)
    with (
        socket.create_connection(("localhost", port(gateway)), 90) as opened,
        context.wrap_socket(opened, server_hostname="localhost") as client,
    ):
        client.sendall(b"\x16\x03\x01\x00\x05hello\r\n\r\n")
        heard = client.recv(65536)
        assert not heard or heard.startswith(b"HTTP/1.1 400 ")


def broken(files: Certificate, what: str, tmp_path: Path) -> str:
    """Break the files in one way; return what the error says of it."""
    if what == "no certificate":
        files.cert.write_bytes(b"nothing")
        return f"gateway.certificate: {files.cert} holds no certificate"
    if what == "missing":
        files.cert.unlink()
        return f"gateway.certificate: {files.cert} cannot be read \\(No such file or directory\\)"
    if what == "missing key":
        files.key.unlink()
        return f"gateway.certificate_key: {files.key} cannot be read"
    if what == "other key":
        shutil.copyfile(make_certificate(tmp_path / "other").key, files.key)
        return f"gateway.certificate_key: {files.key} is not the key of {files.cert}"
    if what == "no key":
        files.key.write_bytes(b"nothing")
        return f"gateway.certificate_key: {files.key} holds no private key"
    if what.startswith("pipe"):
        file = files.key if what == "pipe for a key" else files.cert
        file.unlink()
        os.mkfifo(file)
        return f"{file} cannot be read"
    if what == "open key":
        files.key.chmod(0o644)
        return f"gateway.certificate_key: {files.key} can be read or changed by every user"
    assert what == "expired"
    shutil.copyfile(make_certificate(tmp_path / "past", days=0).cert, files.cert)
    return f"gateway.certificate: {files.cert} expired on "


@pytest.mark.parametrize(
    "what",
    [
        "no certificate",
        "missing",
        "missing key",
        "other key",
        "no key",
        "open key",
        "expired",
        "pipe",
        "pipe for a key",
    ],
)
def test_what_cannot_be_used_is_told_with_its_setting(tmp_path: Path, what: str) -> None:
    files = make_certificate(tmp_path / "files")
    told = broken(files, what, tmp_path)
    with pytest.raises(ConfigurationError, match=told):
        OwnCertificate(files.cert, files.key, Counters(), http2=True)


def test_a_gateway_does_not_start_without_a_usable_one(upstream: Upstream, tmp_path: Path) -> None:
    files = make_certificate(tmp_path / "files")
    files.key.chmod(0o604)
    with (
        pytest.raises(AssertionError, match="can be read or changed by every user"),
        GatewayProcess(tmp_path / "home", settings(upstream, files)),
    ):
        pass


@pytest.mark.parametrize("given", ORDER)
def test_one_file_alone_is_refused(upstream: Upstream, files: Certificate, given: str) -> None:
    from proxy.config import GatewayConfig

    with pytest.raises(ValueError, match="belong together"):
        GatewayConfig.model_validate({given: str(files.cert)})
