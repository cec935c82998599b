"""Measures the ladder: what reaches everybody, how many sessions a bad candidate gets, and how soon it is gone.

Sessions of five prepared candidates and of the control are drawn again and again, day by day, as a
gateway would part them, until the trial ends. A trial sees what the shipped policy sees: success,
four slices, six guards. Then a real gateway under load loses its bad version, and the time is
taken until the last call that it answered. Twelve sabotaged updates and harmless ones go to the
guards (benchmarks/sabotages.py).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.sabotages import sabotages
from evolve.arms import names
from evolve.detectors import Counted
from evolve.policy import Ladder, TrafficSlice
from evolve.trial import ArmComparison, Arms, judge, look, margin_of
from headrace.processes.supervisor import headrace_command
from proxy.clients.keys import KeyRegistry
from tests.support.ports import free_port
from train.registry.versions import ModelRegistry

TENANTS = ("acme", "birch", "cedar", "delta")
LADDER = Ladder(slices=tuple(TrafficSlice(tenant=one) for one in TENANTS))
FAILS = 0.35
GUARDED = {
    "latency": 0.1, "cost": 0.1, "tool_errors": 0.05, "format": 0.03, "refusals": 0.02, "unjudged": 0.1,
}  # fmt: skip
"""Share of the control's sessions in which each guard sees something."""
POOL = 20_000
A_LOOK, LOOKS_A_DAY = 50, 8


@dataclass(frozen=True)
class Candidate:
    """How a prepared candidate differs from its control, in shares of sessions."""

    fails: float = 0.0
    in_acme: float = 0.0
    guards: dict[str, float] = field(default_factory=dict)


CANDIDATES = {
    "good": Candidate(fails=-0.15),
    "neutral": Candidate(),
    "bad": Candidate(fails=0.10),
    "slice": Candidate(in_acme=0.30),
    "unsafe": Candidate(guards={"cost": -0.06, "refusals": 0.02, "tool_errors": 0.15}),
}


def pool(candidate: Candidate, draw: np.random.Generator) -> "np.typing.NDArray[np.int32]":
    """Return sessions: of each comparison whether it counts there, and whether it went wrong."""
    tenant = draw.integers(len(TENANTS), size=POOL)
    fails = FAILS + candidate.fails + candidate.in_acme * (tenant == 0)
    failed = draw.random(POOL) < fails
    columns = [np.ones(POOL, bool), failed]
    for at in range(len(TENANTS)):
        columns += [tenant == at, failed & (tenant == at)]
    for name in LADDER.guards:
        share = GUARDED[name] + candidate.guards.get(name, 0.0)
        columns += [np.ones(POOL, bool), draw.random(POOL) < share]
    return np.stack(columns, axis=1).astype(np.int32)


def climb(
    candidate: "np.typing.NDArray[np.int32]",
    control: "np.typing.NDArray[np.int32]",
    draw: np.random.Generator,
) -> tuple[str, int, int]:
    """Return how a trial ended, and the sessions of both arms."""
    compared = names(LADDER)
    known = dict.fromkeys(compared, ArmComparison())
    for at in range(LADDER.max_days * LOOKS_A_DAY + 1):
        some = int(draw.binomial(A_LOOK, LADDER.canary))
        arms = [
            arm[draw.integers(POOL, size=size)].sum(axis=0).tolist()
            for arm, size in ((candidate, some), (control, A_LOOK - some))
        ]
        for number, name in enumerate(compared):
            fresh = Arms(*(Counted(*arm[2 * number : 2 * number + 2]) for arm in arms))
            known[name] = look(known[name], fresh, margin_of(LADDER, name))
        verdict = judge(LADDER, known, timedelta(days=at / LOOKS_A_DAY))
        if verdict.outcome != "go on":
            break
    seen = known["success"].arms
    return verdict.outcome, seen.candidate.sessions, seen.control.sessions


def resampled(trials: int, seed: int) -> dict[str, Any]:
    """Return what becomes of each candidate in so many trials."""
    draw = np.random.default_rng(seed)
    control = pool(Candidate(), draw)
    ends = {}
    for name, candidate in CANDIDATES.items():
        sessions = pool(candidate, draw)
        ends[name] = [climb(sessions, control, draw) for _ in range(trials)]
        counted = Counter(end for end, _, _ in ends[name])
        print(f"{name:8} {dict(counted)}", file=sys.stderr, flush=True)

    def share(name: str, outcome: str, most: float = float("inf")) -> float:
        return sum(e == outcome and max(n, m) <= most for e, n, m in ends[name]) / trials

    def exposure(name: str) -> float:
        return float(np.median([n for _, n, _ in ends[name]]))

    return {
        "trials": trials * len(CANDIDATES),
        "bad_live": share("bad", "promote"),
        "bad_exposure_p50": exposure("bad"),
        "neutral_rolled_back": share("neutral", "roll back"),
        "neutral_live": share("neutral", "promote"),
        "good_live": share("good", "promote", 600),
        "good_sessions_p50": float(np.median([max(n, m) for _, n, m in ends["good"]])),
        "good_rolled_back": share("good", "roll back"),
        "slice_live": share("slice", "promote"),
        "slice_exposure_p50": exposure("slice"),
        "unsafe_live": share("unsafe", "promote"),
        "unsafe_exposure_p50": exposure("unsafe"),
    }


class Engine(BaseHTTPRequestHandler):
    """Answers for both versions, and keeps when it was asked for which."""

    protocol_version = "HTTP/1.1"
    asked: "list[tuple[float, str]]"

    def do_GET(self) -> None:
        """List both."""
        self._answer({"data": [{"id": "shop@0001"}, {"id": "shop@0002"}]})

    def do_POST(self) -> None:
        """Answer as the version that is asked for."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((time.monotonic(), asked["model"]))
        told = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": told, "finish_reason": "stop"}
        self._answer({"id": "c", "object": "chat.completion", "created": 1, "model": asked["model"],
                      "choices": [choice]})  # fmt: skip

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def running(home: Path, command: str) -> Iterator[None]:
    """Run a part of Headrace as a process of its own."""
    with (home / f"{command}.log").open("wb") as log:
        process = subprocess.Popen(
            headrace_command(["--home", str(home), command]), stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@dataclass
class Load:
    """Clients that call without a pause, each call a session of its own."""

    url: str
    key: str
    calls: int = 0
    failed: int = 0
    begun: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def call(self, name: int) -> None:
        """Call until it is over; what fails before the first answers does not count."""
        with httpx.Client(timeout=30, trust_env=False) as client:
            number = 0
            while not self.over.is_set():
                number += 1
                headers = {
                    "authorization": f"Bearer {self.key}",
                    "x-headrace-session": f"{name}-{number}",
                }
                asked = {"model": "shop", "messages": [{"role": "user", "content": "hi"}]}
                try:
                    good = client.post(self.url, json=asked, headers=headers).status_code == 200
                except httpx.HTTPError:
                    good = False
                if not good and not self.begun:
                    time.sleep(0.2)
                self.calls += self.begun
                self.failed += self.begun and not good


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something.

    Raises:
        TimeoutError: it did not come.
    """
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the gateway did not answer as it should; see its log")
        time.sleep(0.05)


def gone(times: int, clients: int) -> dict[str, Any]:
    """Return how long a bad version is still called after it was taken back, as canary and as live."""
    asked: list[tuple[float, str]] = []
    engine = ThreadingHTTPServer(("127.0.0.1", 0), type("Told", (Engine,), {"asked": asked}))
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        models = ModelRegistry(home / "models")
        for weights in ("one", "two"):
            made = home / weights
            made.mkdir()
            (made / "model.safetensors").write_bytes(weights.encode())
            models.register("shop", made, {"origin": "adopted"}, passed=True)
        models.promote("shop", "0001", actor="bench")
        gateway = {"routes": [{"name": "shop", "model": "shop"}], "port": (port := free_port()),
                   "forward_port": None, "admin_port": None}  # fmt: skip
        serve = {"url": f"http://127.0.0.1:{engine.server_port}"}
        (home / "headrace.yaml").write_text(json.dumps({"gateway": gateway, "serve": serve}))
        key = KeyRegistry.load(home / "keys.json").create(
            tenant_id="acme", app_id="bot", environment="test", purposes=("debug",)
        )
        load = Load(f"http://127.0.0.1:{port}/shop/v1/chat/completions", key.secret)
        threads = [threading.Thread(target=load.call, args=(at,)) for at in range(clients)]
        took: list[float] = []
        with running(home, "serve"), running(home, "gateway"):
            for thread in threads:
                thread.start()
            try:
                until(lambda: bool(asked))
                time.sleep(1)
                load.begun = True
                for at in range(times):
                    if at % 2:
                        models.promote("shop", "0002", actor="bench")
                    else:
                        models.try_out("shop", "0002", "canary", actor="bench", share=0.5)
                    known = len(asked)
                    until(lambda: any(label == "shop@0002" for _, label in asked[known:]))  # noqa: B023
                    back = time.monotonic()
                    if at % 2:
                        models.rollback("shop", actor="bench", reason="worse")
                    else:
                        models.end_trial("shop", "canary", actor="bench", reason="worse")
                    time.sleep(3)
                    took.append(max(when for when, label in asked if label == "shop@0002") - back)
            finally:
                load.over.set()
                for thread in threads:
                    thread.join()
    engine.shutdown()
    return {
        "rollbacks": times,
        "last_call_after_rollback_s_max": round(max(took), 3),
        "calls": load.calls,
        "failed_calls": load.failed,
    }


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, help="of each candidate")
    given = parser.parse_args()
    found = resampled(given.trials or (20 if given.quick else 400), given.seed)
    guarded = sabotages()
    print(json.dumps({**found, **guarded, **gone(2 if given.quick else 20, clients=8)}))


if __name__ == "__main__":
    main()
