"""Evaluates a model on held-out tasks: the same agent and the real tool server, without a gateway.

``python -m examples.practice.evaluate --model PATH --report FILE --tasks N --seed S`` writes one
JSON object per line: ``{"task_id", "attempt", "success", "reward", "slice"}``. With ``--cache DIR``
a model whose weights were tried at the same tasks before is not tried again. Each core tries a part of
the tasks: one process with two threads is hardly quicker than with one.
"""

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

from examples.practice.clients import CLIENTS
from examples.practice.fleet import Plan, Session, run_fleet
from examples.practice.network import load_network
from examples.practice.tasks import SPLITS
from examples.practice.tools import ToolServer
from headrace.serving.server import ModelServer
from train.generation import Engine

CACHE_VARIABLE = "PRACTICE_EVALUATIONS"
"""Names a folder as ``--cache`` does."""

MOST_PROCESSES = 4
"""By default: each holds the model."""
_LOADED_ONCE = [
    "examples.practice.fleet",
    "headrace.serving.server",
    "transformers.models.llama.modeling_llama",
]
"""What processes have in common: it takes longer to load than some tasks to try."""


def evaluate(
    model: Path,
    *,
    tasks: int,
    seed: int,
    start: int = 0,
    attempts: int = 1,
    temperature: float = 0.7,
    client: str = "openai-chat",
    split: str = "heldout",
    with_tools: bool = True,
) -> list[Session]:
    """Run every attempt at every task from ``start`` on; return the sessions in the tasks' order.

    Over chat completions the same model does the same each time. Its draws are seeded, and its arithmetic does not
    depend on what else it generates at the moment.
    """
    key = secrets.token_hex(16)
    engine = Engine(load_network(model, exact=True))
    provider = ModelServer({"practice": engine}, key=key).listen("127.0.0.1", 0)
    tools = ToolServer(seed=seed).listen()
    with provider, tools:
        address = f"http://127.0.0.1:{provider.port}"
        plan = Plan(
            client=client,
            tools_url=f"http://127.0.0.1:{tools.port}/mcp" if with_tools else None,
            sessions=tasks * attempts,
            seed=seed,
            split=split,
            start=start,
            attempts=attempts,
            concurrency=16,
            stream_share=0.0,
            temperature=temperature,
            seeded=True,
            base_url=address if client == "anthropic" else f"{address}/v1",
            api_key=key,
            direct=True,
        )
        report = asyncio.run(run_fleet(plan))
    engine.stop()
    places = range(start, start + tasks)
    number = {f"practice-{seed}-{split}-{index}": index for index in places}
    return sorted(report.sessions, key=lambda s: (number[s.task.task_id], s.attempt))


def evaluate_in_parts(options: argparse.Namespace) -> list[Session]:
    """Return what :func:`evaluate` does, from processes that each try a part of the tasks."""
    tasks, processes = options.tasks, min(options.processes, options.tasks)
    bounds = [tasks * part // processes for part in range(processes + 1)]
    counts = [end - begin for begin, end in pairwise(bounds)]
    context = get_context("forkserver")
    context.set_forkserver_preload(_LOADED_ONCE)
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        parts = pool.map(partial(_evaluate_part, options), bounds, counts)
        return [session for part in parts for session in part]


def _evaluate_part(options: argparse.Namespace, start: int, tasks: int) -> list[Session]:
    """Evaluate on one core."""
    import torch

    torch.set_num_threads(1)
    return evaluate(
        options.model,
        tasks=tasks,
        seed=options.seed,
        start=start,
        attempts=options.attempts,
        temperature=options.temperature,
        client=options.client,
        split=options.split,
        with_tools=options.tools,
    )


def write_report(path: Path, sessions: Iterable[Session]) -> None:
    """Write one line per session; nothing of prompts or answers."""
    lines = [
        json.dumps(
            {
                "task_id": session.task.task_id,
                "attempt": session.attempt,
                "success": session.success,
                "reward": 1.0 if session.success else 0.0,
                "slice": session.task.slice,
            }
        )
        for session in sessions
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def cached_report(options: argparse.Namespace) -> Path | None:
    """Return where the report of these weights at these tasks is kept; None without a cache."""
    if options.cache is None:
        return None
    asked = (options.tasks, options.seed, options.attempts, options.temperature, options.tools)
    key = hashlib.sha256(f"{asked} {options.client} {options.split}".encode())
    key.update((options.model / "model.safetensors").read_bytes())
    return Path(options.cache / f"{key.hexdigest()[:32]}.jsonl")


def main() -> None:
    """Evaluate and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--attempts", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--client", choices=CLIENTS, default="openai-chat")
    parser.add_argument("--split", choices=SPLITS, default="heldout")
    parser.add_argument(
        "--without-tools", dest="tools", action="store_false", help="a desk that decides alone"
    )
    cores = min(os.cpu_count() or 1, MOST_PROCESSES)
    parser.add_argument("--processes", type=int, default=cores, help="each with one thread")
    kept_in = os.environ.get(CACHE_VARIABLE)
    parser.add_argument("--cache", type=Path, default=Path(kept_in) if kept_in else None)
    options = parser.parse_args()
    kept = cached_report(options)
    if kept is not None and kept.is_file():
        shutil.copyfile(kept, options.report)
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sessions = evaluate_in_parts(options)
    write_report(options.report, sessions)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(options.report, kept)


if __name__ == "__main__":
    main()
