"""Direct implementations of the papers, in plain Python, to hold the SQL against.

Each takes the attempts that have a reward and returns step_id → advantage.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tests.lakehouse.credit.worlds import Attempt

type Advantages = dict[str, float]


def total(attempt: Attempt) -> float:
    return sum(attempt.rewards())


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_t = r_t + gamma G_{t+1}."""
    out: list[float] = []
    running = 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        out.append(running)
    return out[::-1]


def normalised(values: Sequence[float], scale: str, deviation: Callable[..., float]) -> list[float]:
    """(x - mean) / std, all 0 where the values do not differ."""
    if max(values) - min(values) <= 1e-9:
        return [0.0] * len(values)
    mean = sum(values) / len(values)
    spread = deviation(values) if scale == "std" else 1.0
    return [(value - mean) / spread for value in values]


def within[Item](
    items: Sequence[Item],
    key: Callable[[Item], Hashable],
    value: Callable[[Item], float],
    scale: str,
    deviation: Callable[..., float],
) -> list[float]:
    """Normalise each item's value among the items with its key."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        groups[key(item)].append(place)
    out = [0.0] * len(items)
    for places in groups.values():
        scores = normalised([value(items[place]) for place in places], scale, deviation)
        for place, score in zip(places, scores, strict=True):
            out[place] = score
    return out


def spread_over_steps(attempts: Sequence[Attempt], scores: Sequence[float]) -> Advantages:
    return {
        decision.step_id: score
        for attempt, score in zip(attempts, scores, strict=True)
        for decision in attempt.decisions
    }


def return_to_go(attempts: Sequence[Attempt], *, gamma: float) -> Advantages:
    return {
        decision.step_id: value
        for attempt in attempts
        for decision, value in zip(
            attempt.decisions, returns(attempt.rewards(), gamma), strict=True
        )
    }


def grpo(attempts: Sequence[Attempt], *, scale: str) -> Advantages:
    scores = within(attempts, lambda a: a.group, total, scale, statistics.stdev)
    return spread_over_steps(attempts, scores)


def leave_one_out(attempts: Sequence[Attempt]) -> Advantages:
    scores = []
    for attempt in attempts:
        others = [total(o) for o in attempts if o.group == attempt.group and o is not attempt]
        scores.append(total(attempt) - sum(others) / len(others) if others else 0.0)
    return spread_over_steps(attempts, scores)


def ema_baseline(attempts: Sequence[Attempt], *, decay: float, by: str) -> Advantages:
    """b <- decay b + (1 - decay) R, debiased; the first of a line has nothing before it."""
    lines: dict[Hashable, tuple[float, float]] = {}
    scores = []
    for attempt in attempts:  # they come in the order of time
        line = {"tenant": attempt.tenant, "app": (attempt.tenant, attempt.app),
                "model": attempt.tenant, "task": attempt.group}[by]  # fmt: skip
        summed, weight = lines.get(line, (0.0, 0.0))
        scores.append(total(attempt) - summed / weight if weight else 0.0)
        lines[line] = (decay * summed + total(attempt), decay * weight + 1.0)
    return spread_over_steps(attempts, scores)


def rows_of(attempts: Sequence[Attempt], gamma: float) -> list[dict[str, Any]]:
    """One row per decision: group, state (its own when unknown), return, states so far."""
    rows = []
    for attempt in attempts:
        states = [d.state or f"alone:{d.step_id}" for d in attempt.decisions]
        values = returns(attempt.rewards(), gamma)
        for place, decision in enumerate(attempt.decisions):
            rows.append({
                "id": decision.step_id, "group": attempt.group, "state": states[place],
                "return": values[place], "seen": states[: place + 1],
            })  # fmt: skip
    return rows


def gigpo(attempts: Sequence[Attempt], *, gamma: float, weight: float, scale: str) -> Advantages:
    """A = A^E + w A^S, eqs. 4, 7 and 8 of arXiv 2505.10978."""
    episodes = grpo(attempts, scale=scale)
    rows = rows_of(attempts, gamma)
    steps = within(
        rows, lambda r: (r["group"], r["state"]), lambda r: r["return"], scale, statistics.stdev
    )
    return {
        row["id"]: episodes[row["id"]] + weight * step
        for row, step in zip(rows, steps, strict=True)
    }


def hgpo(
    attempts: Sequence[Attempt], *, gamma: float, history: int, alpha: float, scale: str
) -> Advantages:
    """A = sum_k w_k A_k with w_k = (k+1)^alpha / sum, groups by the k observations before."""
    rows = rows_of(attempts, gamma)
    out = dict.fromkeys((row["id"] for row in rows), 0.0)
    whole = sum((k + 1) ** alpha for k in range(history + 1))
    for k in range(history + 1):
        scores = within(
            rows,
            lambda r, k=k: (r["group"], tuple(r["seen"][-(k + 1) :])),
            lambda r: r["return"],
            scale,
            statistics.pstdev,
        )
        for row, score in zip(rows, scores, strict=True):
            out[row["id"]] += (k + 1) ** alpha / whole * score
    return out


def grouped_gae(
    attempts: Sequence[Attempt], *, gamma: float, trace: float, scale: str
) -> Advantages:
    """delta_t = r_t + gamma V(s_{t+1}) - V(s_t); A_t = delta_t + gamma lambda A_{t+1}."""
    rows = rows_of(attempts, gamma)
    met: dict[Hashable, list[float]] = defaultdict(list)
    for row in rows:
        met[row["group"], row["state"]].append(row["return"])
    worth = {row["id"]: statistics.fmean(met[row["group"], row["state"]]) for row in rows}
    out: Advantages = {}
    for attempt in attempts:
        ids, rewards = [d.step_id for d in attempt.decisions], attempt.rewards()
        running = 0.0
        for place in reversed(range(len(ids))):
            after = worth[ids[place + 1]] if place + 1 < len(ids) else 0.0
            running = rewards[place] + gamma * after - worth[ids[place]] + gamma * trace * running
            out[ids[place]] = running
    if scale == "none":
        return out
    scores = within(rows, lambda r: r["group"], lambda r: out[r["id"]], "std", statistics.stdev)
    return {row["id"]: score for row, score in zip(rows, scores, strict=True)}


def process_grpo(attempts: Sequence[Attempt], *, scale: str) -> Advantages:
    """A_t = sum of (r_j - mean R) / std R over the steps j >= t, R all step rewards of the task."""
    rows = [
        {"id": d.step_id, "group": a.group, "reward": reward}
        for a in attempts for d, reward in zip(a.decisions, a.rewards(), strict=True)
    ]  # fmt: skip
    scores = within(rows, lambda r: r["group"], lambda r: r["reward"], scale, statistics.stdev)
    score = {row["id"]: value for row, value in zip(rows, scores, strict=True)}
    return {
        decision.step_id: sum(score[later.step_id] for later in a.decisions[place:])
        for a in attempts for place, decision in enumerate(a.decisions)
    }  # fmt: skip


def hindsight(attempts: Sequence[Attempt], *, gamma: float, passing: float) -> Advantages:
    """A(x, a) = (1 - pi(a|x) / h(a|x, z)) Z, eq. 4 of arXiv 1912.02503, z whether the attempt passed."""
    rows = []
    for attempt in attempts:
        values = returns(attempt.rewards(), gamma)
        for decision, value in zip(attempt.decisions, values, strict=True):
            state = attempt.group, decision.state or f"alone:{decision.step_id}"
            action = decision.action or decision.step_id
            rows.append((decision.step_id, state, action, total(attempt) >= passing, value))
    out = {}
    for name, state, action, passed, value in rows:
        here = [row for row in rows if row[1] == state]
        alike = [row for row in here if row[3] == passed]
        before = sum(row[2] == action for row in here) / len(here)
        after = sum(row[2] == action for row in alike) / len(alike)
        out[name] = (1 - before / after) * value
    return out


REFERENCES: dict[str, Callable[..., Advantages]] = {
    "return_to_go": return_to_go,
    "grpo": grpo,
    "leave_one_out": leave_one_out,
    "ema_baseline": ema_baseline,
    "gigpo": gigpo,
    "hgpo": hgpo,
    "grouped_gae": grouped_gae,
    "process_grpo": process_grpo,
    "hindsight": hindsight,
}
