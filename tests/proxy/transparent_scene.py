"""A sidecar's scene, played in a network namespace of its own: see test_transparent.py.

``python -m tests.proxy.transparent_scene FOLDER ROOTS CERT KEY``: connections of one group are redirected
to the gateway, whose own go straight to the upstream.
"""

import json
import ssl
import subprocess
import sys
from pathlib import Path

import httpx

from tests.proxy.provider import provider
from tests.proxy.running import Running
from tests.proxy.upstream import Upstream

GROUP = 54321
CLIENT = """
import httpx, json, ssl, sys
answers = []
for url, roots in json.loads(sys.argv[1]):
    context = ssl.create_default_context(cafile=roots)
    try:
        answer = httpx.post(url, content=b"hello", verify=context, trust_env=False)
    except httpx.HTTPError as error:
        answers.append(type(error).__name__)
    else:
        answers.append([answer.status_code, answer.text])
print(json.dumps(answers))
"""


def tool(*words: str) -> None:
    """Run a program that must succeed."""
    subprocess.run(words, check=True, capture_output=True, text=True)


def client(*calls: tuple[str, str]) -> list[object]:
    """Make calls as a process whose connections are redirected."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps(calls)],
        group=GROUP,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[object] = json.loads(done.stdout)
    return found


def main(folder: Path, roots: Path, cert: Path, key: Path) -> None:
    """Play the scene."""
    tool("ip", "link", "set", "lo", "up")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with (
        Upstream(provider, tls=context) as secure,
        Upstream(provider, tls=context) as other,
        Upstream(provider) as plain,
    ):
        credential = {"env": "PROVIDER_KEY"}
        routes = [
            {"name": "openai", "upstream": secure.url, "credential": credential},
            {"name": "plain", "upstream": plain.url, "credential": credential},
        ]
        settings = {
            "routes": routes,
            "upstream_ca": str(roots),
            "transparent_port": 0,
            "transparent_key": {"env": "RUNNING_KEY"},
        }
        with Running(folder, settings, {"PROVIDER_KEY": "sk-provider"}) as gateway:
            rule = f"-t nat -A OUTPUT -p tcp -m owner --gid-owner {GROUP} -j REDIRECT --to-ports"
            tool("iptables", *rule.split(), str(gateway.transparent_port))
            play(gateway, secure, other, plain, str(roots))


def play(gateway: Running, secure: Upstream, other: Upstream, plain: Upstream, roots: str) -> None:
    """Make the calls and look at what came of them."""
    opened, tunnelled, clear = client(
        (f"{secure.url}/echo", gateway.bundle),
        (f"{other.url}/echo", roots),
        (f"{plain.url}/echo", gateway.bundle),
    )
    assert opened == tunnelled == clear == [200, "hello"], (opened, tunnelled, clear)
    assert secure.seen[0].header("authorization") == "Bearer sk-provider"
    assert other.seen[0].header("authorization") is None
    assert plain.seen[0].header("authorization") is None
    exchanges = sorted(gateway.exchanges(2), key=lambda exchange: exchange.route)
    assert [(e.route, e.mode, e.upstream) for e in exchanges] == [
        ("openai", "transparent", secure.url),
        ("plain", "transparent", plain.url),
    ]
    assert exchanges[0].request.body == b"hello"
    assert exchanges[0].client.tenant_id == "acme"
    rows = httpx.get(f"{gateway.admin}/inventory").json()
    assert [(row["host"], row["port"]) for row in rows] == [("localhost", other.port)]
    with httpx.Client(trust_env=False) as direct:
        try:
            direct.get(f"http://127.0.0.1:{gateway.transparent_port}/")
        except httpx.RemoteProtocolError:
            return
    raise AssertionError("a connection to the gateway itself was not ended")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
