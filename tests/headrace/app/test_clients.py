"""What ``headrace env`` prints: clients that read it reach the gateway and trust it."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from examples.practice.certificate import make_certificate
from headrace.app.clients import base_url_environment, local_client_key, proxy_environment
from headrace.app.home import Home
from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig
from proxy.mitm.authority import TRUST_STORE_PASSWORD, ensure_authority
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.tls import Tls, tls
from tests.support.upstream import Upstream

__all__ = ["tls"]

PYTHON = "import httpx, sys; print(httpx.post(sys.argv[1], content=b'hello').text)"
NODE = """
fetch(process.argv[1], {method: "POST", body: "hello"})
  .then(async answer => console.log(await answer.text()))
"""

JAVA = """
import java.net.*;
public class Main {
  public static void main(String[] arguments) throws Exception {
    Authenticator.setDefault(new Authenticator() {
      protected PasswordAuthentication getPasswordAuthentication() {
        return new PasswordAuthentication(System.getProperty("https.proxyUser"),
            System.getProperty("https.proxyPassword").toCharArray());
      }
    });
    HttpURLConnection connection = (HttpURLConnection) new URL(arguments[0]).openConnection();
    connection.setDoOutput(true);
    connection.getOutputStream().write("hello".getBytes());
    System.out.println(new String(connection.getInputStream().readAllBytes()));
  }
}
"""


def config(*routes: str, **settings: object) -> GatewayConfig:
    listed = [{"name": f"r{at}", "upstream": url} for at, url in enumerate(routes)]
    return GatewayConfig.model_validate({"routes": listed, **settings})


def test_this_machine_is_excepted_but_for_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "db.internal, localhost")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    remote = proxy_environment(config("https://api.openai.com"), "hr_a_b", Path("/b.pem"))
    assert remote["NO_PROXY"] == remote["no_proxy"] == "localhost,127.0.0.1,::1,db.internal"
    monkeypatch.setenv("NO_PROXY", "db.internal")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Xmx2g {remote['JAVA_TOOL_OPTIONS']}")
    local = proxy_environment(config("http://localhost:8000"), "hr_c_d", Path("/b.pem"))
    assert local["NO_PROXY"] == "db.internal"
    options = local["JAVA_TOOL_OPTIONS"].split()
    assert options[0] == "-Xmx2g"
    assert "-Dhttps.proxyPassword=hr_c_d" in options
    assert len(options) == 1 + len(remote["JAVA_TOOL_OPTIONS"].split())
    assert remote["HTTPS_PROXY"] == "http://headrace:hr_a_b@127.0.0.1:8485"
    assert "-Djavax.net.ssl.trustStore=/b.p12" in remote["JAVA_TOOL_OPTIONS"].split()
    assert "-Dhttps.proxyPort=8485" in remote["JAVA_TOOL_OPTIONS"].split()


def test_base_urls_of_the_known_clients() -> None:
    routes = [
        {"name": name, "upstream": "https://x"} for name in ("openai", "anthropic", "gemini", "own")
    ]
    found = base_url_environment(GatewayConfig.model_validate({"routes": routes}), "hr_a_b")
    base = "http://127.0.0.1:8484"
    assert found["OPENAI_BASE_URL"] == found["OPENAI_API_BASE"] == f"{base}/openai/v1"
    assert found["ANTHROPIC_BASE_URL"] == f"{base}/anthropic"
    assert found["GOOGLE_GEMINI_BASE_URL"] == f"{base}/gemini"
    assert found["OWN_BASE_URL"] == f"{base}/own"
    assert found["GEMINI_API_KEY"] == "hr_a_b"


@pytest.mark.parametrize(
    ("host", "named"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("::1", "localhost")],
)
def test_base_urls_name_a_host_that_the_certificate_holds_for(
    tmp_path: Path, host: str, named: str
) -> None:
    files = make_certificate(tmp_path)
    settings = {
        "host": host,
        "certificate": str(files.cert),
        "certificate_key": str(files.key),
        "routes": [{"name": "openai", "upstream": "https://x"}],
    }
    found = base_url_environment(GatewayConfig.model_validate(settings), "hr_a_b")
    assert found["OPENAI_BASE_URL"] == f"https://{named}:8484/openai/v1"


def test_the_trust_store_for_java_holds_the_bundle(tmp_path: Path) -> None:
    authority = ensure_authority(tmp_path)
    data = authority.bundle_path.with_suffix(".p12").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old roots have serial numbers that are now forbidden
        store = load_pkcs12(data, TRUST_STORE_PASSWORD.encode())
    held = {entry.certificate for entry in store.additional_certs}
    assert authority.certificate in held
    context = ssl.create_default_context(cafile=str(authority.bundle_path))
    assert len(held) == len(context.get_ca_certs())


@pytest.fixture(scope="module")
def scene(
    tls: Tls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GatewayProcess, Upstream, Path]]:
    home = tmp_path_factory.mktemp("clients")
    with Upstream(provider, tls=tls.context) as secure:
        settings = {
            "routes": [{"name": "openai", "upstream": secure.url}],
            "upstream_ca": str(tls.roots),
        }
        with GatewayProcess(home, settings) as gateway:
            yield gateway, secure, home


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([sys.executable, "-c", PYTHON], id="python"),
        pytest.param(["curl", "-sS", "--data", "hello"], id="curl"),
        pytest.param(["node", "-e", NODE], id="node"),
        pytest.param(["java", "Main.java"], id="java"),
    ],
)
def test_clients_that_read_it_get_through(
    scene: tuple[GatewayProcess, Upstream, Path], command: list[str]
) -> None:
    gateway, secure, home = scene
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    if command[0] == "node" and not node_reads_the_proxy():
        pytest.skip("this Node is too old to read proxy variables")
    (home / "Main.java").write_text(JAVA)
    settings = json.loads((home / "gateway.json").read_text())
    settings["forward_port"] = gateway.forward_port
    variables = proxy_environment(
        GatewayConfig.model_validate(settings), gateway.key, Path(gateway.bundle)
    )
    done = subprocess.run(
        [*command, f"{secure.url}/echo"],
        env={**os.environ, **variables},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "hello", done.stderr
    exchange = gateway.exchange()
    assert (exchange.mode, exchange.request.body) == ("forward", b"hello")


def node_reads_the_proxy() -> bool:
    """Tell whether the installed Node knows NODE_USE_ENV_PROXY."""
    done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    major, minor, _ = (int(part) for part in done.stdout.strip().removeprefix("v").split("."))
    return (major, minor) >= (24, 5) or (major == 22 and minor >= 21)


def test_commands_that_come_first_at_once_have_one_key(tmp_path: Path) -> None:
    meet = Barrier(4)

    def key(home: Home) -> str:
        meet.wait()
        return local_client_key(home, KeyRegistry.load(home.client_keys))

    with ThreadPoolExecutor(4) as threads:
        for number in range(10):
            home = Home(tmp_path / str(number)).create()
            (found,) = set(threads.map(key, [home] * 4))
            registry = KeyRegistry.load(home.client_keys)
            assert registry.authenticate(found) is not None
            assert len(registry.list()) == 1


def test_a_damaged_key_is_replaced(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    (home.secrets / "client.key").write_bytes(b"\xff\xfe\x00")
    registry = KeyRegistry.load(home.client_keys)
    assert registry.authenticate(local_client_key(home, registry)) is not None
