"""Whether the control plane finds what was planted, stays quiet in quiet nights, and how fast it decides.

A shop's agents work 42 ordinary nights with 200 sessions each; then one of nine causes begins. Each night
the product's own command path decides with the shipped policy and records it (``DecisionBook.run``). Beside it
two competitors see the same nights: a nightly 95 % Wilson interval of the success rate that
retrains when it falls below the usual rate, and "retrain every night".

    make bench-evolve ARGS=--quick

Sessions are rows that the lake's own writer writes; thousands through a gateway would take hours. In one
further world some sessions of the night of the cause go through a real gateway, the governor and redaction.
The quiet worlds and the delays of 200 drops are counts per night, drawn without a lake: no rule is
asked there, each confirmed signal counts as a false intervention.

Prints one JSON object:

- ``right_surface``: share of worlds with the right surface and subject (``right_by_cause``); of the competitors
  ``wilson_right``, ``retrain_right``;
- ``median_delay_nights``: nights until the proposal, causes that should lead to one; ``drop_delay_nights``: until
  ten points at 200 sessions a night are confirmed, in 200 worlds;
- ``false_interventions``: per 60 quiet nights; ``wilson_false``: share of those worlds with an alarm;
- ``replay_identical``: decisions that are the same bytes at their table versions after more was written;
- ``plan_s``, ``plan_cpu_s``, ``plan_peak_mib``: one plan over ``plan_steps`` steps, in a process of its own;
- ``gateway_right``: the world with real traffic, and ``gateway_sessions`` of its sessions.
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import httpx

from benchmarks.evolve_traffic import CAUSES, FAILS, T0, Traffic, lake_of
from evolve import evidence
from evolve.decisions import DecisionBook
from evolve.detectors import Counted, Series, examine, total
from evolve.policy import load_evolution
from lakehouse.lake import Lake
from lakehouse.read.connection import connect
from lakehouse.schema.tables import TABLES
from lakehouse.write.commits import append
from lakehouse.write.rows import to_arrow
from train.evaluation.intervals import wilson
from trajectory.canonical import canonical_json

POLICY = load_evolution()
SINCE = POLICY.spec.window.nights
"""The night with the cause: all nights of the window before it are ordinary."""
LOOKS = 5
"""Nights that are looked at, at most, in a world with a cause."""
COUNTED = [name for name in POLICY.spec.signals if name != "mix"]
RATES = {
    "success": FAILS, "correction_rate": 0.07, "invalid_arguments": 0.02, "tool_errors": 0.02,
    "abandonment": 0.01, "cost_per_success": 0.1, "retries": 0.03,
}  # fmt: skip
TOOLS = 8
"""Subjects of tool errors in a quiet world."""


def find_causes(seeds: Sequence[int], looks: int, replays: int) -> list[dict[str, Any]]:
    """Return what was decided in a world per cause and seed; of some worlds a decision is replayed."""
    found: list[dict[str, Any]] = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder) / "base"
            ordinary = Traffic(seed, None, SINCE)
            lake_of(str(base), ordinary, SINCE).close()
            usual = failures(ordinary, 0, SINCE)
            for cause in CAUSES:
                place = Path(folder) / cause
                shutil.copytree(base, place)
                is_replayed = len(found) % len(CAUSES) < replays
                traffic = Traffic(seed, cause, SINCE)
                found.append(find_cause(place, traffic, looks, usual, is_replayed=is_replayed))
                shutil.rmtree(place)
    return found


def find_cause(
    folder: Path, traffic: Traffic, looks: int, usual: Counted, *, is_replayed: bool
) -> dict[str, Any]:
    """Decide night by night until something is proposed."""
    lake = Lake.open(str(folder), create=False)
    traffic.nights(SINCE, SINCE + looks).write(lake)
    book = DecisionBook(lake, lambda *_: None, actor="benchmark", clock=_clock())
    surface, wanted = CAUSES[str(traffic.cause)]
    delay, alarm = None, False
    for night in range(SINCE, SINCE + looks):
        recorded = book.run(POLICY, T0 + timedelta(days=night + 1))
        alarm = alarm or wilson_alarm(usual, failures(traffic, night, night + 1))
        if recorded.decision.surface != "nothing":
            delay = night - SINCE + 1
            break
    decided = recorded.decision
    identical = None
    if is_replayed:
        traffic.nights(SINCE + looks, SINCE + looks + 1).write(lake)
        again = book.replayed(recorded)
        identical = canonical_json(again.document) == canonical_json(decided.document)
    right = decided.surface == surface and (wanted or "") in (decided.subject or "")
    if traffic.cause == "cost_doubled":
        right = decided.surface in ("harness", "nothing")
    lake.close()
    return {
        "cause": traffic.cause, "surface": decided.surface, "subject": decided.subject,
        "right": right, "delay": delay, "changes": surface != "nothing",
        "wilson_right": ("weights" if alarm else "nothing") == surface,
        "retrain_right": surface == "weights", "identical": identical,
    }  # fmt: skip


def _clock() -> Callable[[], datetime]:
    moment = T0 + timedelta(days=SINCE)

    def tick() -> datetime:
        nonlocal moment
        moment += timedelta(seconds=1)
        return moment

    return tick


def failures(traffic: Traffic, first: int, last: int) -> Counted:
    """Return the judged sessions of some nights, and those that failed."""
    said = [one.value for one in traffic.nights(first, last).signals if one.name == "success"]
    return Counted(len(said), said.count(0.0))


def wilson_alarm(usual: Counted, last: Counted) -> bool:
    """Return whether one night's interval lies below the usual success rate."""
    found = wilson(last.sessions - last.events, last.sessions, 0.95)
    return found.high < 1 - usual.events / usual.sessions


def drawn(draw: random.Random, share: float, sessions: int) -> Counted:
    """Return a night."""
    return Counted(sessions, draw.binomialvariate(sessions, share))


def quiet(worlds: int, nights: int = 60) -> dict[str, Any]:
    """Return how often quiet worlds are disturbed; every night all detectors look."""
    spec, window = POLICY.spec.detectors, POLICY.spec.window
    watched = [(name, "") for name in COUNTED if name != "tool_errors"]
    watched += [("tool_errors", f"tool {at}: other") for at in range(TOOLS)]
    false, alarmed, opened = 0, 0, 0
    for world in range(worlds):
        draw = random.Random(f"quiet {world}")  # noqa: S311 - no secret
        volume = [200 + draw.randint(-40, 40) for _ in range(SINCE + nights)]
        series = {
            one: [
                drawn(draw, RATES[one[0]], n // 4 if one[1] else n) for n in volume
            ]
            for one in watched
        }  # fmt: skip
        rests, wilson_alarmed = 0, False
        for last in range(SINCE + 1, SINCE + nights + 1):
            success = series["success", ""]
            before = total(success[max(0, last - 29) : last - 1])
            wilson_alarmed = wilson_alarmed or wilson_alarm(before, success[last - 1])
            confirmed = False
            for one, counts in series.items():
                alike = len(COUNTED) * (TOOLS if one[1] else 1)
                cut = Series(one[0], one[1], tuple(counts[last - SINCE : last]))  # type: ignore[arg-type]
                state = examine(cut, spec, window, alike=alike)
                assert state is not None
                confirmed = confirmed or state.confirmed
                opened += state.opened
            if confirmed and last >= rests:
                false, rests = false + 1, last + POLICY.spec.cooldown.nights
        alarmed += wilson_alarmed
    return {
        "quiet_worlds": worlds,
        "false_interventions": false / worlds,
        "wilson_false": alarmed / worlds,
        "open_cases_per_60_nights": round(opened / worlds, 2),
    }


def drops(worlds: int, points: float = 0.1) -> float:
    """Return the median of nights until a drop of success is confirmed, 200 sessions a night."""
    spec, window = POLICY.spec.detectors, POLICY.spec.window
    found = []
    for world in range(worlds):
        draw = random.Random(f"drop {world}")  # noqa: S311 - no secret
        counts = [drawn(draw, FAILS, 200) for _ in range(SINCE)]
        delay = 0
        while delay < 30:
            delay += 1
            counts.append(drawn(draw, FAILS + points, 200))
            cut = Series("success", "", tuple(counts[-SINCE:]))
            state = examine(cut, spec, window, alike=len(COUNTED))
            if state is not None and state.confirmed:
                break
        found.append(delay)
    return float(median(found))


_NAMED = {
    "steps": ("trajectory_id", "step_id", "parent_step_id", "exchange_id"),
    "signals": ("trajectory_id", "target_id", "signal_id"),
}


def large_lake(folder: Path, steps: int) -> None:
    """Make a lake of so many steps: a world with a renamed field, over and over."""
    traffic = Traffic(1, "tool_renamed", SINCE)
    lake = lake_of(str(folder), traffic, 0)
    rows = traffic.nights(0, SINCE + 2)
    copies = max(1, round(steps / len(rows.steps)))
    maker = connect()
    for name, names in _NAMED.items():
        spec = TABLES[name]
        maker.register("once", to_arrow(spec, getattr(rows, name)))
        renamed = ", ".join(f"{one} || '-' || r AS {one}" for one in names)
        for first in range(0, copies, 10):
            last = min(copies, first + 10)
            made = maker.sql(
                f"SELECT * REPLACE ({renamed}) FROM once, range({first}, {last}) s(r)"  # noqa: S608
            ).to_arrow_table()
            append(lake.log(name), made.select(spec.arrow.names).cast(spec.arrow))
    maker.close()
    lake.close()


def plan_alone(folder: Path) -> dict[str, Any]:
    """Plan in a process of its own; return seconds and peak memory."""
    command = [sys.executable, str(Path(__file__)), "--plan", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def plan_here(folder: Path) -> dict[str, Any]:
    """Plan once."""
    lake = Lake.open(str(folder), create=False)
    begun, used = time.perf_counter(), time.process_time()
    decided = evidence.plan(lake, POLICY, as_of=T0 + timedelta(days=SINCE + 2))
    seconds, spent = time.perf_counter() - begun, time.process_time() - used
    steps = lake.query("SELECT count(*) AS n FROM steps").column("n")[0].as_py()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "plan_s": round(seconds, 2), "plan_cpu_s": round(spent, 2), "plan_peak_mib": round(peak), "plan_steps": steps,
        "plan_right": decided.surface == "tool_schema",
    }  # fmt: skip


def through_gateway(sessions: int) -> dict[str, Any]:
    """Let some sessions of the night of the cause pass a real gateway and be governed; decide."""
    from tests.headrace.governed import govern
    from tests.proxy.running import Running
    from tests.support.provider.sessions import ModelTurn, SessionProvider
    from tests.support.upstream import Upstream

    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    traffic = Traffic(1, "tool_renamed", SINCE, begin=today - timedelta(days=SINCE))

    def script(_session: Any, request: Any) -> ModelTurn:
        turns = (
            ModelTurn(calls=(("find_order", {"order_id": "A-1"}),)),
            ModelTurn(calls=(("refund", {"order_id": "A-1"}),)),
            ModelTurn("I could not refund the order."),
        )
        return turns[min(request.turns, 2)]

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        lake_of(str(home / "lake"), traffic, SINCE + 1).close()
        with Upstream(SessionProvider(script, pause=0.0)) as upstream:
            settings = {"routes": [{"name": "model", "upstream": upstream.url}]}
            with Running(home, settings) as gateway:
                for number in range(sessions):
                    _work(gateway.url, gateway.key, number)
        lake = govern(home)
        decided = evidence.plan(lake, POLICY, as_of=today + timedelta(days=1))
        considered: Any = decided.document["considered"]
        examples = considered["examples"].get(decided.subject, [])
        real = [one for one in examples if not one.startswith("w1-")]
        lake.close()
    return {
        "gateway_sessions": sessions,
        "gateway_right": decided.surface == "tool_schema" and "refund" in str(decided.subject),
        "gateway_examples": len(real),
    }


def _work(url: str, key: str, number: int) -> None:
    """Ask as an agent does whose tool refuses the field that it always sent, and say how it went."""
    headers = {
        "x-api-key": key, "x-headrace-agent": "support", "x-headrace-session": f"s-{number}",
        "anthropic-version": "2023-06-01",
    }  # fmt: skip
    tools = [
        {"name": name, "description": "Of the shop.", "input_schema": {"type": "object"}}
        for name in ("find_order", "refund")
    ]
    messages: list[Any] = [{"role": "user", "content": f"Money back for order {number}, please."}]
    results = (("found", False), ("invalid request: unknown field order_id; expected order", True))
    answer: Any = None
    for turn in range(3):
        body = {"model": "shop@4", "max_tokens": 200, "tools": tools, "messages": messages}
        asked = httpx.post(f"{url}/model/v1/messages", json=body, headers=headers, timeout=30)
        answer = asked.raise_for_status().json()
        messages.append({"role": "assistant", "content": answer["content"]})
        used = [part for part in answer["content"] if part["type"] == "tool_use"]
        if used:
            said, is_error = results[turn]
            result = {
                "type": "tool_result", "tool_use_id": used[0]["id"], "content": said,
                "is_error": is_error,
            }  # fmt: skip
            messages.append({"role": "user", "content": [result]})
    feedback = {
        "response_id": answer["id"], "name": "success", "value": 0.0, "source_kind": "verifier",
        "source": "tests", "source_version": "1",
    }  # fmt: skip
    told = httpx.post(
        f"{url}/headrace/v1/feedback", json=feedback, headers={"authorization": f"Bearer {key}"}
    )
    told.raise_for_status()


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed, 50,000 steps, within 50 s")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.plan is not None:
        print(json.dumps(plan_here(chosen.plan)))
        return
    seeds = 1 if chosen.quick else chosen.seeds
    begun = time.perf_counter()
    worlds = find_causes(
        range(1, seeds + 1), 3 if chosen.quick else LOOKS, 3 if chosen.quick else len(CAUSES)
    )
    delays = [one["delay"] or LOOKS + 1 for one in worlds if one["changes"]]
    by_cause = Counter(one["cause"] for one in worlds if one["right"])
    with tempfile.TemporaryDirectory() as folder:
        large_lake(Path(folder), 50_000 if chosen.quick else chosen.steps)
        planned = plan_alone(Path(folder))
    result = {
        "benchmark": "evolve",
        "worlds": len(worlds),
        "right_surface": _share(worlds, "right"),
        "right_by_cause": {cause: by_cause[cause] / seeds for cause in CAUSES},
        "wilson_right": _share(worlds, "wilson_right"),
        "retrain_right": _share(worlds, "retrain_right"),
        "median_delay_nights": median(delays),
        "drop_delay_nights": drops(200),
        **quiet(200),
        "replay_identical": _share(
            [one for one in worlds if one["identical"] is not None], "identical"
        ),
        **planned,
        **through_gateway(10 if chosen.quick else 60),
        "traffic": "rows of the lake's own writer; gateway_sessions through gateway and governor",
        "seconds": round(time.perf_counter() - begun, 1),
    }
    print(json.dumps(result))


def _share(worlds: Sequence[dict[str, Any]], name: str) -> float:
    return round(sum(one[name] for one in worlds) / len(worlds), 4)


if __name__ == "__main__":
    main()
