"""Artefacts: what they cost at the gateway, whether their cap holds, and what an erasure leaves of them.

Prints one JSON line:

- ``gain``, ``gain_ci_low``: success after one cycle minus success before, at the same fresh orders, with
  unchanged weights, and the lower end of its interval of 95 % (``benchmarks/artifact_gains.py``). The model
  that reads rules is made first and kept in ``--work``. ``--quick`` leaves it out: null.
- ``chat``: the same of a chat model that ``--chat-model`` names, at questions that only a fact answers
  (``benchmarks/delivery_questions.py``).
- ``gateway_cpu_overhead``: share of CPU by which a call costs more with a prompt's block, facts, a
  procedure and a patch than the same call on a route without them; median of turns in one process.
  The calls are of conversations that grow, as an agent's do.
  ``cpu_us_without`` and ``cpu_us_with`` are microseconds of a call. All three are of the plain listener
  and of whole answers of 700 characters, the calls that cost a gateway least; ``mitmproxy`` has the same
  of the other one. ``streamed`` has both for answers of 50 chunks, 20 ms apart, as an engine writes
  them. ``--quick`` leaves it out: null.
- ``over_cap``: of ``cap_cases`` drawn requests those whose texts grew by more than the route's tokens.
- ``derived_bytes_after_erasure``: bytes below ``artifacts/`` that were drawn from an erased person.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.artifact_gains import Size, artifact_gains
from benchmarks.delivery_questions import ASKED
from benchmarks.gateway_traffic import Channel, Variant, connect
from benchmarks.gateway_variants import Upstream, start_headrace, start_upstream, wait_for
from examples.practice.model import ensure_model
from examples.practice.reading import READING
from examples.practice.stage import ROOT
from lakehouse.erasure.erase import erase_subject
from proxy.artifacts.bodies import BODIES, ChatBody, MessagesBody, ModelBody
from proxy.artifacts.shelf import RouteArtifacts, Shelf
from proxy.config import Route
from proxy.telemetry.counters import Counters
from tests.train.lakes import Session, lake_of
from train.registry.artifacts import ArtifactRegistry
from trajectory.artifact import Artifact

_WORDS = "refund order parcel lamp cash shop gift card days price return address é 汉字 stock size"
WORDS = _WORDS.split()
CONNECTIONS, STREAMS = 16, 64
"""Conversations side by side, of whole answers and of streamed ones."""
CALLS = 20
"""Of each conversation."""
STREAM_ROUNDS = 5
PEOPLE = 20


def text(draw: random.Random, most: int) -> str:
    """Return drawn words."""
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def tool(name: str, description: str) -> dict[str, Any]:
    """Return a definition with a limit."""
    amount = {"type": "number", "maximum": 50}
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": {"amount": amount}},
    }


def contents(draw: random.Random) -> dict[str, dict[str, Any]]:
    """Return the content of one artefact of each kind."""
    facts = [{"id": f"f{at}", "text": text(draw, 40)} for at in range(draw.randint(1, 60))]
    place = "/refund/description"
    edits: list[dict[str, Any]] = [
        {"append": text(draw, 80)},
        {"replace": {"old": "help", "new": text(draw, 80)}},
    ]
    return {
        "style": {"harness": draw.choice(edits)},
        "facts": {"tenant": "bench", "memory": {"best": draw.randint(1, 20), "facts": facts}},
        "asking": {
            "skill": {
                "title": "Paying back",
                "trigger": {"phrases": [draw.choice(WORDS[:12])]},
                "procedure": text(draw, 200),
            }
        },
        "tools": {"tools": {"patch": [{"op": "replace", "path": place, "value": text(draw, 90)}]}},
    }


def shelved(folder: Path, said: dict[str, dict[str, Any]]) -> None:
    """Let artefacts serve from a folder, as the registry leaves them."""
    for name, content in said.items():
        home = folder / name / "0001"
        home.mkdir(parents=True)
        value = {"proposer": "bench", "licence": "CC0-1.0", **content}
        (home / "artifact.json").write_text(json.dumps(value))
        (folder / name / "live.json").write_text(json.dumps({"version": "0001"}))


def request(draw: random.Random, dialect: type[ModelBody], messages: int = 6) -> dict[str, Any]:
    """Return a drawn request's body."""
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text(draw, 60)} for at in range(messages)]
    defined = tool("refund", text(draw, 20))
    if dialect is ChatBody:
        system = {"role": "system", "content": "You help in a shop."}
        tools = [{"type": "function", "function": defined}]
        return {"model": "bench", "messages": [system, *said], "tools": tools}
    if dialect is MessagesBody:
        schema = defined.pop("parameters")
        tools = [{**defined, "input_schema": schema}]
        return {"model": "bench", "system": "You help.", "messages": said, "tools": tools}
    tools = [{"type": "function", **defined}]
    return {"model": "bench", "instructions": "You help.", "input": said, "tools": tools}


def letters(value: Any) -> int:
    """Return the bytes of all texts in a JSON value."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict):
        return sum(letters(key) + letters(one) for key, one in value.items())
    return sum(map(letters, value)) if isinstance(value, list) else 0


def cap_holds(folder: Path, cases: int) -> dict[str, int]:
    """Return how many of the drawn requests grew by more than their route's tokens."""
    draw = random.Random(20)  # noqa: S311 - no secret
    over = applied = done = 0
    for number in range(-(-cases // 50)):
        home = folder / str(number)
        said = contents(draw)
        shelved(home, said)
        shelf = Shelf(home, said)
        for _ in range(min(50, cases - done)):
            done += 1
            cap = draw.choice((1, 10, 30, 100, 400, 1000))
            names = draw.sample(sorted(said), k=draw.randint(1, 4))
            evolve = {"artifacts": names, "tokens": cap, "milliseconds": 1000}
            route = Route.model_validate(
                {"name": "r", "upstream": "http://127.0.0.1:1", "evolve": evolve}
            )
            dialect = draw.choice(BODIES)
            value = request(draw, dialect)
            tenant = draw.choice(("bench", "other"))
            data = json.dumps(value, indent=1).encode()
            found = RouteArtifacts(route, shelf).apply(
                dialect, data, tenant=tenant, agent=None, session=None, counters=Counters()
            )
            if found is None:
                continue
            applied += 1
            sent = json.loads(found.body)
            over += letters(sent) - letters(value) > 3 * cap
    return {"cap_cases": done, "cap_applied": applied, "over_cap": over}


def left_after_erasure(folder: Path) -> int:
    """Return the bytes that artefacts hold of a person's words after the person's erasure."""
    people = [
        Session(
            number, subject=f"b2:subject-{number}", purposes=("evolve",),
            question=f"Lamp number{number}word is sold in pairs.",
        )
        for number in range(PEOPLE)
    ]  # fmt: skip
    lake = lake_of(folder / "lake", *people)
    registry = ArtifactRegistry(folder / "artifacts", source=lake)
    facts = [
        {"id": f"f{at}", "text": f"Lamp number{at}word is sold in pairs.",
         "evidence": [f"t{at:05d}-0"]}
        for at in range(PEOPLE)
    ]  # fmt: skip
    procedure = {
        "title": "Pairs",
        "trigger": {"phrases": ["lamp"]},
        "procedure": "Lamp number0word.",
    }
    origin = {"tenant": "acme", "proposer": "bench", "licence": "CC0-1.0"}
    for name, content in (
        ("facts", {"memory": {"facts": facts}}),
        ("pairs", {"skill": procedure, "evidence": ["t00000-0"]}),
    ):
        document = {"apiVersion": "headrace/v1", "kind": "Artifact", "metadata": {"name": name}}
        made = Artifact.model_validate({**document, "spec": {**origin, **content}})
        for _ in range(2):
            registry.register(made, actor="bench")
        registry.promote(name, "0001", actor="bench")
    marks = (b"number0word", b"subject-0")
    if not _bytes_of(folder / "artifacts", marks):
        raise RuntimeError("nothing was drawn, so an erasure shows nothing")
    erase_subject(lake, "acme", ["b2:subject-0"])
    registry.sweep()
    if not _bytes_of(folder / "artifacts", (b"number1word",)):
        raise RuntimeError("the erasure took other people's facts")
    return _bytes_of(folder / "artifacts", marks)


def _bytes_of(folder: Path, marks: tuple[bytes, ...]) -> int:
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return sum(data.count(mark) * len(mark) for data in files for mark in marks)


async def spent_per_call(
    variant: Variant, rounds: int, *, streamed: bool
) -> list[dict[str, float]]:
    """Return per round the microseconds of CPU that a call costs on either route.

    The routes take turns call by call of the conversations, since a machine is not equally fast for long.
    """
    draw = random.Random(7)  # noqa: S311 - no secret
    channels = [await connect(variant) for _ in range(STREAMS if streamed else CONNECTIONS)]
    ways = {
        name: replace(variant, path=f"/{name}/v1/chat/completions") for name in ("bench", "evolved")
    }
    order, found = list(ways), []
    for number in range(-1, rounds):
        spent = dict.fromkeys(ways, 0.0)
        for bodies in conversations(draw, len(channels), streamed=streamed):
            for name in order:
                requests = [ways[name].request(body) for body in bodies]
                before = variant.used()
                await _calls(channels, requests)
                spent[name] += 1e6 * (variant.used() - before) / len(channels) / CALLS
            order.reverse()
        if number >= 0:
            found.append(spent)
    for channel in channels:
        channel.close()
    return found


def conversations(draw: random.Random, count: int, *, streamed: bool) -> list[list[bytes]]:
    """Return the bodies of conversations that go on side by side, call by call: each adds two messages."""
    told = [request(draw, ChatBody, messages=2 * CALLS) for _ in range(count)]
    for number, one in enumerate(told):
        one["messages"][0]["content"] = f"You help in shop {number}."
        one["stream"] = streamed
    return [
        [json.dumps({**one, "messages": one["messages"][:upto]}).encode() for one in told]
        for upto in range(2, 2 + 2 * CALLS, 2)
    ]


async def _calls(channels: list[Channel], requests: list[bytes]) -> None:
    waiting = iter(requests)

    async def work(channel: Channel) -> None:
        for one in waiting:
            await channel.call(one)

    await asyncio.gather(*map(work, channels))


def gateway_overhead(
    home: Path, upstream: Upstream, rounds: int, listener: str, *, streamed: bool = False
) -> dict[str, float]:
    """Return what artefacts add to the CPU of a call in one gateway: medians of the rounds."""
    draw = random.Random(3)  # noqa: S311 - no secret
    said = contents(draw)
    shelved(home / "artifacts", said)
    route = {"upstream": f"http://127.0.0.1:{upstream.plain}"}
    evolve = {"artifacts": sorted(said)}
    routes = [{"name": "bench", **route}, {"name": "evolved", **route, "evolve": evolve}]
    variant = start_headrace(
        "artifacts", home / "gateway", upstream, listener=listener, routes=routes,
        artifacts=str(home / "artifacts"),
    )  # fmt: skip
    assert variant.process is not None
    try:
        if not wait_for(variant):
            raise RuntimeError("the gateway does not start")
        found = asyncio.run(spent_per_call(variant, rounds, streamed=streamed))
    finally:
        variant.process.terminate()
        variant.process.wait(15)
    more = statistics.median(one["evolved"] / one["bench"] - 1 for one in found)
    medians = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return {
        "gateway_cpu_overhead": round(more, 3),
        "cpu_us_without": round(medians["bench"]),
        "cpu_us_with": round(medians["evolved"]),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; within 50 seconds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument(
        "--work", type=Path, default=ROOT / ".headrace" / "gains", help="keeps the model"
    )
    parser.add_argument(
        "--chat-model", type=Path, help="folder of a chat model; asked only if named"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        home = Path(scratch)
        process, upstream = start_upstream(home)
        try:
            rounds = 3 if options.quick else 41
            more: dict[str, Any] = gateway_overhead(home / "plain", upstream, rounds, "plain")
            more["mitmproxy"] = gateway_overhead(home / "mitmproxy", upstream, rounds, "mitmproxy")
            more["streamed"] = (
                None
                if options.quick
                else {
                    listener: gateway_overhead(
                        home / f"streamed-{listener}",
                        upstream,
                        STREAM_ROUNDS,
                        listener,
                        streamed=True,
                    )
                    for listener in ("plain", "mitmproxy")
                }
            )
        finally:
            process.terminate()
            process.wait(15)
        found: dict[str, Any] = {"gain": None, "gain_ci_low": None}
        if not options.quick:
            model = ensure_model(options.work / "practice", progress=True, lesson=READING)
            found = artifact_gains(model, home / "gains", options.seeds, Size())
        if options.chat_model is not None:
            size = Size(orders=20, day=24)
            found["chat"] = artifact_gains(
                options.chat_model, home / "chat", options.seeds, size, ASKED
            )
        result = {
            **found,
            **more,
            "derived_bytes_after_erasure": left_after_erasure(home / "erasure"),
            **cap_holds(home / "cap", 10_000),
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
