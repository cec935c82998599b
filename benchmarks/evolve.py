"""Whether the control plane finds what was planted, stays quiet in quiet nights, and how fast it decides.

A shop's agents work 42 ordinary nights with 200 sessions each; then one of nine causes begins. Each night
the product's own command path decides with the shipped policy and records it (``DecisionBook.run``). Beside it
two competitors see the same nights: a nightly 95 % Wilson interval of the success rate that
retrains when it falls below the usual rate, and "retrain every night".

    make bench-evolve ARGS=--quick

Sessions of the nights with the cause go through a real gateway, the governor and redaction, and so do all
ordinary nights of the first seeds (``--whole``). Of the other seeds the last ordinary night does, so that
the governor has numbered the usual harness; the nights before it are rows that the lake's own writer writes.
A seed takes some 70 s of processor time, one that is whole twice that. ``--quick`` takes four
causes and lets one pass.
The quiet worlds and the delays of 200 drops are counts per night, drawn without a lake: no rule is
asked there, each confirmed signal counts as a false intervention; ``--quick`` draws fewer of the former.

Prints one JSON object:

- ``right_surface``: share of worlds with the right surface and subject (``right_by_cause``); of the competitors
  ``wilson_right``, ``retrain_right``;
- ``median_delay_nights``: nights until the proposal, causes that should lead to one; ``drop_delay_nights``: until
  ten points at 200 sessions a night are confirmed, in 200 worlds;
- ``false_interventions``: per 60 quiet nights; ``wilson_false``: share of those worlds with an alarm;
- ``replay_identical``: decisions that are the same bytes at their table versions after more was written;
- ``plan_s``, ``plan_cpu_s`` (processor time, whatever else the machine does), ``plan_peak_mib``: one plan over ``plan_steps`` steps, in a process of its own;
- ``gateway_exchanges``: calls that went through a gateway and were governed, ``gateway_share`` of all steps that
  were decided about, ``gateway_worlds`` with such nights, ``gateway_right`` of these.
- ``seconds``, ``cpu_seconds``: of the whole run; processor time counts the gateways and all other processes.
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
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.evolve_gateway import GatewayTraffic
from benchmarks.evolve_traffic import CAUSES, FAILS, T0, TASKS, Traffic, lake_of
from evolve import evidence
from evolve.decisions import DecisionBook
from evolve.detectors import Counted, Series, examine, total
from evolve.policy import SignalName, load_evolution
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
QUICK_CAUSES = ("tool_renamed", "weak", "canary_regressed", "judge_changed")
"""One of each kind: a tool, the weights, a roll-back, nothing."""
LOOKS = 5
"""Nights that are looked at, at most, in a world with a cause."""
COUNTED = [name for name in POLICY.spec.signals if name != "mix"]
RATES = {
    "success": FAILS, "correction_rate": 0.07, "invalid_arguments": 0.02, "tool_errors": 0.02,
    "abandonment": 0.01, "cost_per_success": 0.1, "retries": 0.03,
}  # fmt: skip
TOOLS = 8
"""Subjects of tool errors in a quiet world."""


def find_causes(
    seeds: Sequence[int],
    looks: int,
    replays: int,
    *,
    causes: Sequence[str] = tuple(CAUSES),
    real: Collection[str],
    whole: int,
) -> list[dict[str, Any]]:
    """Return what was decided in a world per cause and seed; of some worlds a decision is replayed.

    Args:
        seeds: one world per cause each.
        looks: nights that are looked at, at most.
        replays: worlds of each seed whose decision is made again.
        causes: what is planted, a world each.
        real: causes whose nights pass a gateway.
        whole: seeds whose ordinary nights pass it too.
    """
    found: list[dict[str, Any]] = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder) / "base"
            ordinary = Traffic(seed, None, SINCE)
            passes = 0 if seed <= whole else SINCE - 1
            lake_of(str(base / "lake"), ordinary, passes).close()
            before = GatewayTraffic(base)
            before.work(ordinary, passes, SINCE).close()
            usual = failures(ordinary, 0, SINCE)
            for at, cause in enumerate(causes):
                place = Path(folder) / cause
                shutil.copytree(base, place)
                traffic = Traffic(seed, cause, SINCE)
                one = find_cause(
                    place, traffic, looks, usual, is_replayed=at < replays, is_real=cause in real
                )
                first = 0 if at == 0 else SINCE
                one["steps"] = calls(traffic, first, SINCE + one["looked"])
                one["exchanges"] = calls(traffic, SINCE, SINCE + one["looked"]) * one["real"]
                if at == 0:
                    one["exchanges"] += calls(traffic, passes, SINCE)
                    one["gateway_cpu_s"] += before.cpu_seconds
                found.append(one)
                shutil.rmtree(place)
    return found


def find_cause(
    home: Path, traffic: Traffic, looks: int, usual: Counted, *, is_replayed: bool, is_real: bool
) -> dict[str, Any]:
    """Decide night by night until something is proposed."""
    gateway = GatewayTraffic(home)
    surface, wanted = CAUSES[str(traffic.cause)]
    clock = _clock()
    delay, alarm = None, False
    for night in range(SINCE, SINCE + looks):
        if is_real:
            lake = gateway.work(traffic, night, night + 1)
        else:
            lake = Lake.open(str(home / "lake"), create=False)
            traffic.nights(night, night + 1).write(lake)
        book = DecisionBook(lake, lambda *_: None, actor="benchmark", clock=clock)
        recorded = book.run(POLICY, T0 + timedelta(days=night + 1))
        alarm = alarm or wilson_alarm(usual, failures(traffic, night, night + 1))
        if recorded.decision.surface != "nothing":
            delay = night - SINCE + 1
            break
        if night < SINCE + looks - 1:
            lake.close()
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
        "cause": traffic.cause, "seed": traffic.seed, "surface": decided.surface,
        "subject": decided.subject, "right": right, "delay": delay, "changes": surface != "nothing",
        "wilson_right": ("weights" if alarm else "nothing") == surface,
        "retrain_right": surface == "weights", "identical": identical, "real": is_real,
        "looked": delay or looks, "gateway_cpu_s": gateway.cpu_seconds,
    }  # fmt: skip


def calls(traffic: Traffic, first: int, last: int) -> int:
    """Return the model calls of some nights."""
    return sum(len(TASKS[one.task]) + 1 for one in traffic.shop_sessions(first, last))


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
    watched: list[tuple[SignalName, str]] = [
        (name, "") for name in COUNTED if name != "tool_errors"
    ]
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
                cut = Series(one[0], one[1], tuple(counts[last - SINCE : last]))
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
    command = [sys.executable, "-m", "benchmarks.evolve", "--plan", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def plan_here(folder: Path) -> dict[str, Any]:
    """Plan once."""
    lake = Lake.open(str(folder), create=False)
    begun, used = time.perf_counter(), time.process_time()
    decided = evidence.plan(lake, POLICY, as_of=T0 + timedelta(days=SINCE + 2))
    seconds, spent = time.perf_counter() - begun, time.process_time() - used
    steps = lake.query("SELECT count(*) AS n FROM steps").column("n")[0].as_py()
    # Not what ``getrusage`` says: that begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return {
        "plan_s": round(seconds, 2), "plan_cpu_s": round(spent, 2), "plan_peak_mib": round(peak), "plan_steps": steps,
        "plan_right": decided.surface == "tool_schema",
    }  # fmt: skip


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="one seed, four causes, 25,000 steps, within 50 s"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--whole", type=int, default=4, help="seeds all of whose nights pass a gateway"
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.plan is not None:
        print(json.dumps(plan_here(chosen.plan)))
        return
    seeds = 1 if chosen.quick else chosen.seeds
    begun = time.perf_counter()
    if chosen.quick:
        worlds = find_causes([1], 3, 1, causes=QUICK_CAUSES, real=QUICK_CAUSES[:1], whole=0)
    else:
        numbers = range(1, seeds + 1)
        worlds = find_causes(numbers, LOOKS, len(CAUSES), real=tuple(CAUSES), whole=chosen.whole)
    delays = [one["delay"] or LOOKS + 1 for one in worlds if one["changes"]]
    by_cause = Counter(one["cause"] for one in worlds if one["right"])
    with tempfile.TemporaryDirectory() as folder:
        large_lake(Path(folder), 25_000 if chosen.quick else chosen.steps)
        planned = plan_alone(Path(folder))
    real = [one for one in worlds if one["real"]]
    exchanges = sum(one["exchanges"] for one in worlds)
    served = sum(one["gateway_cpu_s"] for one in worlds)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "benchmark": "evolve",
        "worlds": len(worlds),
        "right_surface": _share(worlds, "right"),
        "right_by_cause": {
            cause: by_cause[cause] / seeds for cause in {w["cause"]: 0 for w in worlds}
        },
        "wilson_right": _share(worlds, "wilson_right"),
        "retrain_right": _share(worlds, "retrain_right"),
        "median_delay_nights": median(delays),
        "drop_delay_nights": drops(200),
        **quiet(20 if chosen.quick else 200),
        "replay_identical": _share(
            [one for one in worlds if one["identical"] is not None], "identical"
        ),
        **planned,
        "gateway_worlds": len(real),
        "gateway_right": _share(real, "right"),
        "gateway_exchanges": exchanges,
        "gateway_share": round(exchanges / sum(one["steps"] for one in worlds), 4),
        "gateway_whole_seeds": 0 if chosen.quick else min(seeds, chosen.whole),
        "wrong": [
            {name: one[name] for name in ("cause", "seed", "surface", "subject")}
            for one in worlds
            if not one["right"]
        ],
        "seconds": round(time.perf_counter() - begun, 1),
        "gateway_cpu_s": round(served, 1),
        "cpu_seconds": round(
            time.process_time() + children.ru_utime + children.ru_stime + served, 1
        ),
    }
    print(json.dumps(result))


def _share(worlds: Sequence[dict[str, Any]], name: str) -> float:
    return round(float(sum(one[name] for one in worlds)) / len(worlds), 4)


if __name__ == "__main__":
    main()
