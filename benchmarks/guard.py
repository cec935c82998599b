"""Tries to get a forbidden tool call past the guard, in 45 ways, and times the calls that may pass.

    python -m benchmarks.guard [--quick]

24 ways lead to a server behind a guarded route, 8 to a stdio server behind the tap; both take whatever they get,
and what reaches them has passed. 13 are answers of a model, and what its client reads has passed. The last line is
one JSON object: ``evasions, evasions_passed, added_ms_per_call, added_ms_per_answer, agents_finished`` (the share of
``benchmarks.guard_agents``). Times compare a guarded route with one of the same gateway that is not, in turn.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from benchmarks.guard_agents import finished_agents
from benchmarks.guard_evasions import FORBIDDEN, in_answers, on_lines
from governance.policy.bundle import SHIPPED
from tests.proxy.gateway_process import GatewayProcess
from tests.support.guard import GuardSetup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, plain

_RULES: dict[str, Any] = {
    "effects": {"read_*": "read"},
    "rules": [
        {"name": "deletes", "match": {"tools": "delete_file"}, "decision": "deny"},
        {
            "name": "payments",
            "match": {"tools": "pay", "arguments": [{"path": "$.amount", "above": 1000}]},
            "decision": "deny",
        },
        {
            "name": "folder",
            "match": {"tools": "*_file", "arguments": [{"path": "$.path", "outside": "/srv"}]},
            "decision": "deny",
        },
        {
            "name": "mails",
            "match": {"tools": "mail"},
            "decision": "limit",
            "budget": {"calls": 0, "seconds": 86400},
        },
        {
            "name": "hosts",
            "match": {
                "arguments": [{"path": "$.url", "other_hosts": "example.com"}],
                "tools": "get",
            },
            "decision": "deny",
        },
    ],
}


class Evasion(NamedTuple):
    """One way of getting a call past the guard."""

    name: str
    body: str
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    path: str = "/mcp"
    method: str = "POST"


def _call(tool: str, **arguments: Any) -> str:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    return json.dumps({**message, "params": {"name": tool, "arguments": arguments}})


def evasions() -> Iterator[Evasion]:
    """Yield all 24."""
    delete = _call("delete_file", path="/srv/a")
    ping = '{"jsonrpc":"2.0","id":2,"method":"ping"}'
    yield Evasion("batch", f"[{ping},{delete}]")
    yield Evasion("notification", delete.replace('"id": 1, ', ""))
    yield Evasion("nested arguments", _call("run", steps=[{"tool": "delete_file", "args": {}}]))
    yield Evasion("JSON in a text", _call("run", request=json.dumps({"name": "delete_file"})))
    yield Evasion("look-alike letters", _call("delete_fіle", path="/srv/a"))
    yield Evasion("another case", _call("Delete_File", path="/srv/a"))
    yield Evasion("other separators", _call("delete-file", path="/srv/a"))
    yield Evasion("invisible letters", _call("delete\u200b_file", path="/srv/a"))
    yield Evasion("duplicate keys", delete.replace('"name"', '"name": "read_file", "name"'))
    yield Evasion("keys in another case", delete.replace('{"json', '{"METHOD": "ping", "json'))
    yield Evasion("escaped keys", delete.replace('"name"', '"name": "read_x", "n\\u0061me"'))
    yield Evasion("method in another case", delete.replace("tools/call", "Tools/Call"))
    yield Evasion("big number as text", _call("pay", amount="1e9"))
    yield Evasion("number beyond floats", _call("pay", amount=0).replace("0}", "1e400}"))
    yield Evasion("key of an argument in another case", _call("pay", Amount=5000))
    yield Evasion("redirected path", _call("read_file", path="/srv/../etc/passwd"))
    yield Evasion("escaped path", _call("read_file", path="/srv/%252e%252e/etc/passwd"))
    yield Evasion("user in a URL", _call("get", url="https://example.com@evil.test/"))
    yield Evasion("second session", _call("mail"), {"mcp-session-id": "another"})
    yield Evasion("resumed stream", delete, {"last-event-id": "7"}, method="GET")
    yield Evasion("compressed", delete, {"content-encoding": "gzip"})
    yield Evasion("other charset", delete, {"content-type": "application/json; charset=utf-7"})
    yield Evasion("path that climbs", delete, path="/x/..%2fmcp")
    yield Evasion("method in a header", delete, {"x-http-method-override": "PUT"}, method="PUT")


_ANSWERS = {one.name: one for one in in_answers()}
_ALLOWED = {
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "x" * 600,
                "tool_calls": [
                    {
                        "id": "c",
                        "function": {"name": "read_file", "arguments": '{"path": "/srv/a"}'},
                    }
                ],
            },
        }
    ]
}
_COPYING_SERVER = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"


def _serve(request: ReceivedRequest) -> Reply:
    if "/chat/completions" not in request.target:
        return as_json({"jsonrpc": "2.0", "id": 1, "result": {"content": []}})
    asked = _ANSWERS.get(json.loads(request.body).get("model", ""))
    if asked is None:
        return as_json(_ALLOWED)
    return plain(200, asked.body, ("Content-Type", asked.kind))


def _passed(gateway: GatewayProcess, upstream: Upstream) -> list[str]:
    found = []
    with httpx.Client(trust_env=False, timeout=30) as client:
        for one in evasions():
            upstream.seen.clear()
            headers = {"authorization": f"Bearer {gateway.key}", **one.headers}
            headers.setdefault("content-type", "application/json")
            url = f"{gateway.url}/tools{one.path}"
            client.request(one.method, url, content=one.body.encode(), headers=headers)
            if upstream.seen:
                found.append(one.name)
    return found


def _passed_in_answers(gateway: GatewayProcess) -> list[str]:
    found = []
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(trust_env=False, timeout=30) as client:
        for name in _ANSWERS:
            url = f"{gateway.url}/models/v1/chat/completions"
            told = client.post(url, json={"model": name, "messages": []}, headers=headers).content
            # What is said of a denied call names it, as a text.
            if b'"' + FORBIDDEN in told.lower() or (
                b"tool_calls" in told and b"read_file" not in told
            ):
                found.append(f"answer: {name}")
    return found


def _passed_on_lines(home: Path) -> list[str]:
    """Send lines through the real tap; what its server has read has passed."""
    policy = shutil.copytree(SHIPPED / "agents-safe", home / "policy")
    head = {"apiVersion": "headrace/v1", "kind": "Action", "metadata": {"name": "bench"}}
    rules = {**head, "spec": {"taps": "*", **_RULES}}
    (policy / "actions.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    environment = {**os.environ, "HEADRACE_HOME": str(home), "HEADRACE_POLICY_BUNDLE": str(policy)}
    command = [sys.executable, "-m", "headrace", "tap", "--name", "files", "--"]
    found = []
    harmless = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    for name, line in (("", harmless), *on_lines()):
        got = home / "got"
        data = line if name == "a line without an end" else line + b"\n"
        server = [sys.executable, "-c", _COPYING_SERVER, str(got)]
        subprocess.run(
            [*command, *server], input=data, env=environment, capture_output=True, check=True
        )
        if bool(got.read_bytes()) is bool(name):  # the harmless line has to
            found.append(f"stdio: {name or 'nothing passes at all'}")
    return found


def _added(
    gateway: GatewayProcess, calls: int, routes: tuple[str, str], path: str, body: bytes
) -> float:
    """Return the median of what a guarded call takes longer, in milliseconds."""
    times: dict[str, list[float]] = {route: [] for route in routes}
    headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}
    with httpx.Client(trust_env=False, timeout=30) as client:
        for _ in range(calls):
            for route, taken in times.items():
                began = time.perf_counter()
                client.post(f"{gateway.url}/{route}{path}", content=body, headers=headers)
                taken.append(time.perf_counter() - began)
    guarded, free = (statistics.median(times[route]) for route in routes)
    return 1000 * (guarded - free)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    calls = 300 if parser.parse_args().quick else 3000
    body = _call("read_file", path="/srv/a.txt", why="x" * 600).encode()
    asked = json.dumps({"model": "any", "messages": []}).encode()
    with tempfile.TemporaryDirectory() as folder, Upstream(_serve) as upstream:
        home = Path(folder)
        kinds = {"tools": "tool", "free": "tool", "models": "model", "unguarded": "model"}
        routes = [
            {"name": name, "upstream": upstream.url, "kind": kind} for name, kind in kinds.items()
        ]
        setup = GuardSetup(home / "approvals.sqlite", _RULES, answers=("models",))
        with GatewayProcess(home, settings={"routes": routes}, guard=setup) as gateway:
            passed = [*_passed(gateway, upstream), *_passed_in_answers(gateway)]
            added = _added(gateway, calls, ("tools", "free"), "/mcp", body)
            of_answer = _added(
                gateway, calls, ("models", "unguarded"), "/v1/chat/completions", asked
            )
        passed += _passed_on_lines(home / "tap")
    agents = finished_agents()
    for name in passed:
        print(f"passed: {name}")
    told = {
        "evasions": sum(1 for _ in evasions()) + len(_ANSWERS) + sum(1 for _ in on_lines()),
        "evasions_passed": len(passed),
        "added_ms_per_call": round(added, 3),
        "added_ms_per_answer": round(of_answer, 3),
        "agents_finished": round(sum(agents.values()) / len(agents), 3),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
