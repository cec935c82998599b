"""Measures assembly on generated worlds with known truth; the last line is one JSON object.

``pairwise_f1`` and ``exact_trajectories`` compare with the truth when clients give no hint of
their session; the same with their native hints; steps per second of one core in batches; bytes
of state for each open session.
"""

import argparse
import gc
import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping

from benchmarks.assembly_worlds import Mixture, World, generate
from trajectory.assembly import Assembler, AssemblerState

KEY = b"benchmark" * 4
BATCH = 500


def assemble(world: World, batch: int) -> tuple[dict[str, str], float, AssemblerState]:
    """Return trajectory by exchange, seconds of assembly, and the state at the end."""
    placed: dict[str, str] = {}
    names: dict[str, str] = {}
    assembler = Assembler(KEY)
    spent = 0.0
    for start in range(0, len(world.calls), batch):
        calls = world.calls[start : start + batch]
        begun = time.process_time()
        assembly = assembler.assemble(calls)
        spent += time.process_time() - begun
        for item in assembly.placed:
            placed[item.call.exchange.exchange_id] = item.trajectory_id
            names[item.step_id] = item.call.exchange.exchange_id
        for correction in assembly.corrections:
            placed[names[correction.step_id]] = correction.trajectory_id
    return placed, spent, assembler.state


def pairwise_f1(truth: Mapping[str, int], placed: Mapping[str, str]) -> float:
    """Return F1 over pairs of exchanges that belong together."""

    def pairs(counts: Counter[object]) -> int:
        return sum(count * (count - 1) // 2 for count in counts.values())

    both = pairs(Counter((truth[name], placed[name]) for name in truth))
    wanted = pairs(Counter(truth.values()))
    found = pairs(Counter(placed[name] for name in truth))
    return 2 * both / (wanted + found) if wanted + found else 1.0


def exact_share(truth: Mapping[str, int], placed: Mapping[str, str]) -> float:
    """Return the share of true sessions that came out as exactly one trajectory."""
    wanted: dict[int, set[str]] = defaultdict(set)
    found: dict[str, set[str]] = defaultdict(set)
    for name, session in truth.items():
        wanted[session].add(name)
        found[placed[name]].add(name)
    made = {frozenset(members) for members in found.values()}
    return sum(frozenset(members) in made for members in wanted.values()) / len(wanted)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer worlds; within 50 seconds")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=Mixture().tasks)
    parser.add_argument("--argument-words", type=int, default=Mixture().argument_words)
    parser.add_argument("--batch", type=int, default=BATCH)
    options = parser.parse_args()
    seeds = 1 if options.quick else options.seeds
    mixture = Mixture(tasks=options.tasks, argument_words=options.argument_words)
    result: dict[str, float | int] = {}
    for hints in (False, True):
        f1, exact, steps, spent, state_bytes = [], [], 0, 0.0, []
        for seed in range(seeds):
            world = generate(options.sessions, seed=seed, mixture=mixture, hints=hints)
            gc.collect()
            placed, seconds, state = assemble(world, options.batch)
            f1.append(pairwise_f1(world.truth, placed))
            exact.append(exact_share(world.truth, placed))
            steps += len(world.calls)
            spent += seconds
            size = len(json.dumps(state.to_json(), separators=(",", ":")))
            state_bytes.append(size / len(state.trajectories))
            print(
                f"hints={hints} seed={seed}: {len(world.calls)} steps, F1 {f1[-1]:.4f},"
                f" exact {exact[-1]:.4f}, {len(world.calls) / seconds:.0f} steps/s"
            )
        end = "_with_hints" if hints else ""
        result[f"pairwise_f1{end}"] = round(min(f1), 5)
        result[f"exact_trajectories{end}"] = round(min(exact), 5)
        result[f"steps_per_s{end}"] = round(steps / spent)
        result[f"state_bytes_per_open_session{end}"] = round(sum(state_bytes) / len(state_bytes))
    result |= {"sessions": options.sessions, "batch": options.batch}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
