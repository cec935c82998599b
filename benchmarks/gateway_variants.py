"""Starts what the gateway's benchmark compares: ours, mitmdump, and other gateways."""

import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gateway_traffic import CHAT, Variant
from examples.practice.certificate import make_certificate
from trajectory.child_process import free_port

ROOT = Path(__file__).resolve().parent.parent

GATEWAY = """
import json, sys
from pathlib import Path
from proxy.config import GatewayConfig
from proxy.gateway import serve
config = GatewayConfig.model_validate_json(Path(sys.argv[1]).read_text())
def ready(addresses):
    print(json.dumps((addresses.base_url or addresses.forward)[1]), flush=True)
serve(config, spool_key=b"s" * 32, fingerprint_key=b"f" * 32, ready=ready)
"""
LITELLM_CALLBACK = """
import json, os
from litellm.integrations.custom_logger import CustomLogger
class Lines(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        with open(os.environ["BENCH_LINES"], "a") as file:
            file.write(json.dumps({"request": kwargs.get("messages"), "response": str(response_obj)}) + "\\n")
lines = Lines()
"""


@dataclass(frozen=True)
class Upstream:
    """Where the upstream listens, and what makes its TLS trusted."""

    plain: int
    secure: int
    roots: Path


def start_upstream(home: Path) -> tuple[subprocess.Popen[bytes], Upstream]:
    """Start the upstream in a process of its own."""
    files = make_certificate(home / "upstream")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gateway", "--upstream", str(files.cert)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    plain, secure = json.loads(process.stdout.readline())
    return process, Upstream(plain, secure, files.ca)


def trusting(roots: Path) -> ssl.SSLContext:
    """Return a client's context that trusts these certificates alone."""
    context = ssl.create_default_context(cafile=str(roots))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def start_headrace(
    name: str,
    home: Path,
    upstream: Upstream,
    *,
    tls: bool = False,
    script: str = GATEWAY,
    **settings: Any,
) -> Variant:
    """Start a gateway of ours; with ``tls`` the intercepting proxy, with another script that."""
    from proxy.clients.keys import KeyRegistry
    from proxy.config import GatewayConfig

    home.mkdir()
    key = KeyRegistry.load(home / "keys.json").create(tenant_id="bench", app_id="bench")
    durability = settings.pop("durability", "journal")
    url = f"https://localhost:{upstream.secure}" if tls else f"http://127.0.0.1:{upstream.plain}"
    config = GatewayConfig.model_validate(
        {
            "port": None if tls else 0,
            "forward_port": 0 if tls else None,
            "admin_port": None,
            "authority": str(home / "ca"),
            "upstream_ca": str(upstream.roots),
            "keys": str(home / "keys.json"),
            "limits": str(home / "limits.sqlite"),
            "spool": {"directory": str(home / "spool")},
            "routes": [{"name": "bench", "upstream": url, "durability": durability}],
            **settings,
        }
    )
    path = home / "gateway.json"
    path.write_text(config.model_dump_json())
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if not tls:
        headers = f"Authorization: Bearer {key.secret}\r\n"
        return Variant(name, 0, f"/bench{CHAT}", headers, process)
    return Variant(
        name,
        0,
        headers="Authorization: Bearer none\r\n",
        process=process,
        connect_headers=f"Proxy-Authorization: Bearer {key.secret}\r\n",
        target=upstream.secure,
        roots=home / "ca" / "ca.pem",
    )


def start_mitmdump(home: Path, upstream: Upstream, *, tls: bool = False) -> Variant:
    """Start mitmdump as it comes; with ``tls`` as the intercepting proxy."""
    port = free_port()
    mode = "regular" if tls else f"reverse:http://127.0.0.1:{upstream.plain}"
    command = [
        str(Path(sys.executable).with_name("mitmdump")),
        "-q",
        *("--set", f"confdir={home}"),
        *("--set", f"ssl_verify_upstream_trusted_ca={upstream.roots}"),
        *("--mode", f"{mode}@127.0.0.1:{port}"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    if not tls:
        return Variant("mitmdump", port, process=process)
    return Variant(
        "mitmdump_tls",
        port,
        process=process,
        target=upstream.secure,
        roots=home / "mitmproxy-ca-cert.pem",
    )


NGINX = """
daemon off; worker_processes 1; pid {home}/pid; error_log {home}/log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e; keepalive_requests 1000000;
  upstream far {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://far; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def start_nginx(home: Path, upstream: Upstream) -> Variant | None:
    """Start nginx as a pass-through of one worker; None where this machine has none."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        return None
    home.mkdir()
    port = free_port()
    settings = home / "nginx.conf"
    settings.write_text(NGINX.format(home=home, upstream=upstream.plain, port=port))
    process = subprocess.Popen(
        [program, "-c", str(settings), "-e", str(home / "log")], stderr=subprocess.DEVNULL
    )
    return Variant("nginx", port, process=process)


ENVOY = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: far, timeout: 0s}}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: far
    connect_timeout: 5s
    load_assignment:
      cluster_name: far
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}
"""


def start_envoy(environment: Path, home: Path, upstream: Upstream) -> Variant:
    """Start envoy as a pass-through of one worker."""
    home.mkdir()
    port = free_port()
    settings = home / "envoy.yaml"
    settings.write_text(ENVOY.format(upstream=upstream.plain, port=port))
    command = [
        str(environment / "bin" / "envoy"),
        *("-c", str(settings), "--concurrency", "1", "--disable-hot-restart", "-l", "off"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Variant("envoy", port, process=process)


def start_smg(environment: Path, home: Path, upstream: Upstream) -> Variant:
    """Start smg as a router before one worker; it captures nothing."""
    home.mkdir()
    port = free_port()
    command = [
        *(str(environment / "bin" / "smg"), "launch", "--host", "127.0.0.1"),
        *("--port", str(port), "--worker-urls", f"http://127.0.0.1:{upstream.plain}"),
        *("--policy", "round_robin", "--log-level", "error", "--disable-health-check"),
        *("--prometheus-port", str(free_port())),
    ]
    process = subprocess.Popen(
        command, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return Variant("smg", port, process=process)


def environment(name: str, *, build: bool) -> Path | None:
    """Return the folder of an environment of others' programs; without ``build`` if it is ready."""
    folder = ROOT / f".venv-{name}"
    if build:
        command = [str(ROOT / "scripts" / "test-environment"), name]
        built = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        return folder if built.returncode == 0 else None
    return folder if (folder / ".ready").exists() else None


def start_litellm(environment: Path, home: Path, upstream: Upstream) -> Variant:
    """Start LiteLLM's proxy with a callback that writes JSON lines."""
    home.mkdir()
    port = free_port()
    (home / "bench_callback.py").write_text(LITELLM_CALLBACK)
    (home / "config.yaml").write_text(
        "model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n"
        f"      api_base: http://127.0.0.1:{upstream.plain}/v1\n      api_key: none\n"
        "litellm_settings:\n  callbacks: bench_callback.lines\n"
    )
    command = [
        str(environment / "bin" / "litellm"),
        *("--config", str(home / "config.yaml")),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    key = f"sk-{secrets.token_hex(32)}"
    variables = {
        **os.environ,
        "LITELLM_MASTER_KEY": key,
        "BENCH_LINES": str(home / "lines.jsonl"),
        "PYTHONPATH": str(home),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_RUST": "true",
    }
    process = subprocess.Popen(
        command, cwd=home, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    headers = f"Authorization: Bearer {key}\r\n"
    return Variant("litellm", port, CHAT, headers, process, slow=True)


def start_portkey(environment: Path, home: Path, upstream: Upstream) -> Variant:
    """Start Portkey's gateway; it asks the upstream that each request names."""
    home.mkdir()
    port = free_port()
    program = environment / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    process = subprocess.Popen(
        ["node", str(program), "--headless", f"--port={port}"],
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    headers = (
        "Authorization: Bearer none\r\nx-portkey-provider: openai\r\n"
        f"x-portkey-custom-host: http://127.0.0.1:{upstream.plain}/v1\r\n"
    )
    # Under Node 20 it answers streams with 500: it changes headers that cannot be changed there.
    return Variant("portkey", port, CHAT, headers, process, slow=True, streaming=False)


def wait_for(variant: Variant, seconds: float = 90.0) -> bool:
    """Wait until calls come through a variant; tell whether they do."""
    if variant.port == 0 and variant.process is not None and variant.process.stdout is not None:
        variant.port = json.loads(variant.process.stdout.readline())
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", variant.port), 1).close()
        except OSError:
            ended = variant.process is not None and variant.process.poll() is not None
            if ended or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        else:
            break
    if variant.roots is not None:
        variant.tls = trusting(variant.roots)
        return True
    while not head_of_answer(variant).startswith(b"HTTP/1.1 200"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def head_of_answer(variant: Variant) -> bytes:
    """Return how an answer begins; some accept connections before they know their upstream."""
    try:
        with socket.create_connection(("127.0.0.1", variant.port), 10) as there:
            there.sendall(variant.request())
            return there.recv(65536)
    except OSError:
        return b""
