"""Plants values in requests that pass a gateway with pseudonymisation, and looks at both of its ends.

    python -m benchmarks.inline [--quick] [--seed N]

The provider records what it gets, and says all of it again, whole or in pieces of seven characters. The
last line is one JSON object: ``planted, reached_provider, restored_share, surrogates_left,
added_p50_ms_1k, added_p50_ms_32k, sse_gap_ratio, no_exact_tokens, no_exact_tokens_at_rest, off_changed,
off_cpu_ratio, off_cpu_ratio_error``. The last three compare a gateway without pseudonymisation with another route of one that has it. Values
that redaction at rest does not find either are counted apart, as ``unknown_to_detectors``. Times compare two routes of
one gateway, in turn. ``no_exact_tokens`` is the share of the demo's personal orders that ``grpo_replay`` leaves out for
that reason once they are in a lake; ``_at_rest`` is that of the same orders on a route without pseudonymisation.
"""

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.inline_wires import WIRES, request_of, text_of
from benchmarks.planting import Secret, planted
from benchmarks.words import everyday_text
from examples.practice.tasks import make_tasks
from governance.identifiers import Namer
from governance.policy import load_bundle
from governance.redact import RedactionScope, redactor_of
from governance.redact.trajectory import TrajectoryRedaction
from headrace.app.inline import InlineSetup
from lakehouse.lake import Lake
from tests.headrace.installations import PlantedInstallation
from tests.proxy.gateway_process import GatewayProcess
from tests.support.echo import echo
from tests.support.inline import inline_setup
from tests.support.provider.token_ids import with_token_ids
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, stream
from trajectory.canonical import canonical_json
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    SpoolPosition,
)
from trajectory.surrogate import FORM

_EACH = 4
"""Values in one request: system prompt, question, tool definition, a tool's arguments and result."""
_KEY = b"k" * 32


def everything(value: Any) -> str:
    """Return all texts of a request's body, one after the other."""
    if isinstance(value, dict):
        return " ".join(everything(one) for one in value.values())
    if isinstance(value, list):
        return " ".join(map(everything, value))
    return value if isinstance(value, str) else ""


class AtRest:
    """What redaction at rest leaves of a request."""

    def __init__(self) -> None:
        self._redactor = redactor_of(load_bundle(), pseudonym_key=_KEY)

    def leaves(self, path: str, body: bytes, values: list[str]) -> list[str]:
        """Return those of the values that are still there."""
        now = datetime.now(UTC)
        exchange = Exchange(
            exchange_id="0" * 32,
            client=ClientIdentity("acme", "app", "test", "key"),
            route="model",
            mode="base_url",
            upstream="http://localhost:1",
            started_at=now,
            first_byte_at=None,
            ended_at=now,
            request=HttpRequest("POST", path, "", (("content-type", "application/json"),), body),
            response=None,
            outcome=ExchangeOutcome.COMPLETE,
            position=SpoolPosition("w", 0, 0),
        )
        call = read_exchange(exchange)
        redaction = TrajectoryRedaction(
            self._redactor, Namer(_KEY), RedactionScope(tenant_id="acme", trajectory_id="t")
        )
        redaction.prepare([call])
        clean = redaction.clean(call, frozenset())
        left = " ".join(
            [one.parts for one in clean.context]
            + [canonical_json(clean.fields.tools).decode("utf-8", "replace")]
        )
        return [value for value in values if is_within(value, left)]


def is_within(value: str, text: str) -> bool:
    """Tell whether a value stands in a text, as it is or as JSON in JSON writes it."""
    forms, form = [value], value
    for _ in range(3):
        form = json.dumps(form, ensure_ascii=False)[1:-1]
        forms.append(form)
    return any(form in text for form in forms)


def leaks(client: httpx.Client, upstream: Upstream, seed: int, count: int) -> dict[str, Any]:
    """Send values in every dialect, whole and streamed."""
    secrets = (secret for secret, _, _ in planted(seed, 10**9))
    at_rest: AtRest | None = None
    planted_so_far = number = reached = unknown = restored = left = 0
    while planted_so_far < count:
        some = [next(secrets) for _ in range(_EACH)]
        turn, at = divmod(number, len(WIRES))
        streamed = bool(turn % 2)
        path = WIRES[at][streamed]
        body = request_of(path, some, streamed=streamed)
        answer = client.post(f"/model{path}", json=body)
        if answer.status_code != 200:
            raise RuntimeError(f"the gateway answered {answer.status_code}")
        sent = upstream.seen.pop().body.decode()
        through = [one.value for one in some if is_within(one.value, sent)]
        if through:
            at_rest = at_rest or AtRest()
            also = at_rest.leaves(path, json.dumps(body).encode(), through)
            unknown += len(also)
            reached += len(through) - len(also)
        text = text_of(path, answer.content, streamed=streamed)
        restored += text == f"You said: {everything(body)}!"
        left += len(FORM.findall(answer.text))
        number += 1
        planted_so_far += _EACH
    return {
        "planted": planted_so_far,
        "reached_provider": reached,
        "unknown_to_detectors": unknown,
        "restored_share": round(restored / number, 4),
        "surrogates_left": left,
    }


def conversation_of(size: int, person: Secret) -> list[dict[str, str]]:
    """Return messages of about so many bytes, of everyday words and one person."""
    said: list[dict[str, str]] = [{"role": "user", "content": person.sentence}]
    draw = random.Random(f"inline/{size}")  # noqa: S311 - reproducible, not secret
    while len(json.dumps(said)) < size:
        role = "assistant" if len(said) % 2 else "user"
        said.append({"role": role, "content": everyday_text(draw, min(80, size // 12))})
    return said


def added(client: httpx.Client, size: int, person: Secret, rounds: int) -> float:
    """Return what a warm conversation's next call waits longer, in milliseconds at the median."""
    times: dict[str, list[float]] = {"model": [], "plain": []}
    messages = conversation_of(size, person)
    for number in range(rounds + 3):
        for route, taken in times.items():
            said = [*messages, {"role": "user", "content": f"And number {number}?"}]
            body = json.dumps({"model": "m", "messages": said}).encode()
            began = time.perf_counter()
            client.post(
                f"/{route}/v1/chat/completions",
                content=body,
                headers={"content-type": "application/json", "x-headrace-session": str(size)},
            )
            if number >= 3:
                taken.append(time.perf_counter() - began)
    medians = {route: statistics.median(taken) for route, taken in times.items()}
    return round((medians["model"] - medians["plain"]) * 1000, 2)


def gap_ratio(client: httpx.Client, person: Secret, rounds: int) -> float:
    """Return the 99th percentile of a stream's gaps, over that without surrogates."""
    gaps: dict[str, list[float]] = {"model": [], "plain": []}
    body = {"model": "m", "stream": True, "pace": True}
    body["messages"] = [{"role": "user", "content": person.sentence}]
    for _ in range(rounds):
        for route, found in gaps.items():
            with client.stream("POST", f"/{route}/v1/chat/completions", json=body) as answer:
                last = None
                for _ in answer.iter_raw():
                    now = time.perf_counter()
                    if last is not None:
                        found.append(now - last)
                    last = now
    worst = {route: statistics.quantiles(found, n=100)[98] for route, found in gaps.items()}
    return round(worst["model"] / worst["plain"], 2)


def cost_when_off(folder: Path, setup: InlineSetup, pairs: int, turns: int) -> dict[str, Any]:
    """Return requests that another route changed, and its CPU over that of a gateway without surrogates.

    One pair of processes differs by some 2 % where both are the same: the figure is the mean of several pairs.
    """
    changed, ratios = 0, []
    for number in range(pairs):
        changes, ratio = _pair(folder / str(number), setup, turns)
        changed += changes
        ratios.append(ratio)
    error = round(statistics.stdev(ratios) / math.sqrt(pairs), 3) if pairs > 1 else None
    return {
        "off_changed": changed,
        "off_cpu_ratio": round(statistics.mean(ratios), 3),
        "off_cpu_ratio_error": error,
    }


def _pair(folder: Path, setup: InlineSetup, turns: int) -> tuple[int, float]:
    """Run a gateway with surrogates on another route and one without; return changed requests and the ratio."""
    heads: dict[str, set[str]] = {"with": set(), "without": set()}
    spent: dict[str, list[int]] = {"with": [], "without": []}
    body = json.dumps({"model": "m", "messages": conversation_of(1_000, _person(1))}).encode()
    with Upstream(_ok) as upstream, ExitStack() as stack:
        ends: dict[str, tuple[httpx.Client, int]] = {}
        for name, inline in (("with", setup), ("without", None)):
            routes = [{"name": one, "upstream": upstream.url} for one in ("model", "plain")]
            process = GatewayProcess(folder / name, {"routes": routes}, inline=inline)
            gateway = stack.enter_context(process)
            headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}
            client = httpx.Client(base_url=gateway.url, headers=headers, timeout=120)
            ends[name] = stack.enter_context(client), gateway.pid
        for turn in range(turns):
            # Short turns, and who comes first takes turns: a machine that slows down slows both.
            for name in sorted(ends, reverse=bool(turn % 2)):
                client, pid = ends[name]
                before = _on_cpu(pid)
                for _ in range(20):
                    client.post("/plain/v1/chat/completions", content=body)
                spent[name].append(_on_cpu(pid) - before)
                heads[name] |= {f"{one.target} {one.headers} {one.body!r}" for one in upstream.seen}
                upstream.seen.clear()
    # The first turns still import what the first calls need.
    took = zip(spent["with"][10:], spent["without"][10:], strict=True)
    return len(heads["with"] ^ heads["without"]), statistics.median(a / b for a, b in took)


def _on_cpu(pid: int) -> int:
    """Return the nanoseconds that a process has run; ticks of 10 ms are a tenth of a turn."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _ok(_: ReceivedRequest) -> Reply:
    return as_json({"choices": []})


def without_exact_tokens(folder: Path, seed: int, count: int) -> dict[str, float]:
    """Return the share of personal orders whose tokens the lake does not have, by route."""
    bundle = inline_setup(folder / "policy", routes=["wire"], budget_ms=600_000).folder
    house = PlantedInstallation(folder / "home", str(bundle))
    inline = InlineSetup.of(load_bundle(bundle), house.home, house.secrets)
    orders = [task.prompt for task in make_tasks(seed, "train", count * 9) if task.planted][:count]
    with Upstream(with_token_ids) as upstream:
        named = ("wire", "rest")
        routes = [{"name": n, "upstream": upstream.url, "capture": "tokens"} for n in named]
        with GatewayProcess(folder / "gateway", {"routes": routes}, inline=inline) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}
            with httpx.Client(base_url=gateway.url, headers=headers, timeout=600) as client:
                for number, order in enumerate(orders):
                    for route in named:
                        client.post(
                            f"/{route}/v1/chat/completions",
                            json={"model": "m", "messages": [{"role": "user", "content": order}]},
                            headers={"x-headrace-session": f"{route}-{number}"},
                        )
            exchanges = gateway.exchanges(len(named) * len(orders))
    house.govern(*exchanges)
    rows = Lake.open(str(house.home.lake)).query(
        "SELECT s.route, avg(CASE WHEN t.step_id IS NULL THEN 1.0 ELSE 0.0 END) AS share, "
        "count(*) AS steps FROM steps s LEFT JOIN (SELECT tenant_id, step_id FROM tokens "
        "WHERE token_fidelity IN ('exact', 'pseudonymised_inline') AND prompt_token_ids IS NOT NULL) t "
        "USING (tenant_id, step_id) GROUP BY s.route"
    )
    shares = {one["route"]: one for one in rows.to_pylist()}
    if {one["steps"] for one in shares.values()} != {len(orders)}:
        raise RuntimeError(f"{len(orders)} orders were sent, and the lake has {shares}")
    found = {"no_exact_tokens": "wire", "no_exact_tokens_at_rest": "rest"}
    return {name: round(float(shares[route]["share"]), 4) for name, route in found.items()}


def _person(seed: int) -> Secret:
    return next(one for one, _, _ in planted(seed, 10**6) if one.kind == "email")


_NO_TOOLS: dict[str, Any] = {"tools": [], "toolConfig": None}


def _answer(request: ReceivedRequest) -> Reply:
    body = json.loads(request.body)
    if not body.get("pace"):
        # Tools are not called: what they may have is no matter here.
        without = replace(request, body=json.dumps({**body, **_NO_TOOLS}).encode())
        return echo(without, lambda _: everything(body))
    text = body["messages"][0]["content"] * 20
    pieces = [text[at : at + 5] for at in range(0, len(text), 5)][:150]
    events = [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": one}}],
        }
        for one in pieces
    ]
    return stream([f"data: {json.dumps(event)}\n\n".encode() for event in events], pause=0.01)


def measured(folder: Path, seed: int, count: int, rounds: int, pairs: int) -> dict[str, Any]:
    """Run a gateway and return the figures."""
    setup = inline_setup(folder / "policy", routes=["model"], budget_ms=60_000)
    person = _person(seed)
    with Upstream(_answer) as upstream:
        routes = [{"name": name, "upstream": upstream.url} for name in ("model", "plain")]
        with GatewayProcess(folder, {"routes": routes}, inline=setup) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}
            with httpx.Client(base_url=gateway.url, headers=headers, timeout=120) as client:
                found = leaks(client, upstream, seed, count)
                found["added_p50_ms_1k"] = added(client, 1_000, person, rounds)
                found["added_p50_ms_32k"] = added(client, 32_000, person, rounds)
                found["sse_gap_ratio"] = gap_ratio(client, person, max(3, rounds // 20))
    found |= without_exact_tokens(folder / "lake", seed, min(200, max(24, rounds)))
    return found | cost_when_off(folder / "off", setup, pairs, 10 + min(rounds, 60))


def main() -> None:
    """Read the options, measure, print one JSON object as the last line."""
    parser = argparse.ArgumentParser(prog="make bench-inline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count, rounds, pairs = (600, 30, 1) if options.quick else (10_575, 300, 8)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), options.seed, count, rounds, pairs)))


if __name__ == "__main__":
    main()
