"""A sidecar's scene, played in a network namespace of its own: see test_transparent.py.

``python -m tests.proxy.transparent_scene FOLDER ROOTS CERT KEY``: connections of one group are redirected
to the gateway, whose own go straight to the upstream.
"""

import json
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.upstream import Upstream

GROUP = 54321
BODY = "hello" * 600_000
"""More than waits in memory while an upstream is being connected."""
CLIENT = """
import httpx, json, ssl, sys
answers = []
for url, roots, name in json.loads(sys.argv[1]):
    context = ssl.create_default_context(cafile=roots)
    named = {"sni_hostname": name} if name else {}
    try:
        with httpx.Client(verify=context, trust_env=False) as client:
            answer = client.request("POST", url, content=b"hello" * 600_000, extensions=named)
    except httpx.HTTPError as error:
        answers.append(type(error).__name__)
    else:
        answers.append([answer.status_code, answer.text])
print(json.dumps(answers))
"""


def tool(*words: str) -> None:
    """Run a program that must succeed."""
    subprocess.run(words, check=True, capture_output=True, text=True)


def client(*calls: tuple[str, str, str]) -> list[object]:
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
    for host, program in (("127.0.0.1", "iptables"), ("::1", "ip6tables")):
        with (
            Upstream(provider, tls=context, host=host) as secure,
            Upstream(provider, tls=context, host=host) as other,
            Upstream(provider, host=host) as plain,
        ):
            shown = f"[{host}]" if ":" in host else host
            ground = Network(shown, program, secure, other, plain)
            scene(folder / program, ground, str(roots))


@dataclass
class Network:
    """What stands where, in one family of addresses."""

    host: str
    program: str
    secure: Upstream
    other: Upstream
    plain: Upstream


def scene(folder: Path, ground: Network, roots: str) -> None:
    """Play the scene in one family of addresses."""
    credential = {"env": "PROVIDER_KEY"}
    routes = [
        {"name": "openai", "upstream": f"{ground.secure.url}/echo", "credential": credential},
        {
            "name": "plain",
            "upstream": f"http://{ground.host}:{ground.plain.port}",
            "credential": credential,
        },
    ]
    settings = {
        "routes": routes,
        "upstream_ca": roots,
        "transparent_port": 0,
        "transparent_key": {"env": "RUNNING_KEY"},
    }
    with GatewayProcess(folder, settings, {"PROVIDER_KEY": "sk-provider"}) as gateway:
        rule = f"-t nat -A OUTPUT -p tcp -m owner --gid-owner {GROUP} -j REDIRECT --to-ports"
        tool(ground.program, *rule.split(), str(gateway.transparent_port))
        play(gateway, ground, roots)
        tool(ground.program, "-t", "nat", "-F", "OUTPUT")


def play(gateway: GatewayProcess, ground: Network, roots: str) -> None:
    """Make the calls and look at what came of them."""
    host, secure, other, plain = ground.host, ground.secure, ground.other, ground.plain
    opened, tunnelled, clear, beside = client(
        (f"https://{host}:{secure.port}/echo", gateway.bundle, "localhost"),
        (f"https://{host}:{other.port}/echo", roots, "localhost"),
        (f"http://{host}:{plain.port}/echo", gateway.bundle, ""),
        (f"https://{host}:{secure.port}/admin", gateway.bundle, "localhost"),
    )
    for answer in (opened, tunnelled, clear):
        assert answer == [200, BODY], str(answer)[:80]
    assert secure.seen[0].header("authorization") == "Bearer sk-provider"
    assert other.seen[0].header("authorization") is None
    assert plain.seen[0].header("authorization") is None
    assert isinstance(beside, list)
    assert beside[0] == 404
    assert secure.seen[1].target == "/admin"
    assert secure.seen[1].header("authorization") is None
    outside, *exchanges = sorted(gateway.exchanges(3), key=lambda exchange: exchange.route)
    assert (outside.route, outside.request.path) == ("-", "/admin")
    assert [(e.route, e.mode) for e in exchanges] == [
        ("openai", "transparent"),
        ("plain", "transparent"),
    ]
    assert exchanges[0].upstream == secure.url
    assert exchanges[0].request.body == BODY.encode()
    assert exchanges[0].client.tenant_id == "acme"
    rows = httpx.get(f"{gateway.admin}/inventory").json()
    assert [(row["host"], row["port"]) for row in rows] == [("localhost", other.port)]
    with httpx.Client(trust_env=False) as direct:
        try:
            direct.get(f"http://{host}:{gateway.transparent_port}/")
        except (httpx.RemoteProtocolError, httpx.ReadError):  # ended, or reset before it was read
            return
    raise AssertionError("a connection to the gateway itself was not ended")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
