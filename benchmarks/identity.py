"""How well harness versions are told apart, and what that costs when calls are governed.

Five agents of one company share most of their text and each has four versions: twenty true versions. Every
call renders its prompt anew (moment, folder, session, person, counters, state of git) and draws a
seed; sessions speak four dialects. Calls go from their bytes through reading, assembly and the shipped
policy with its detectors into a lake. Sessions of all versions are mixed in time.

    make bench-identity ARGS=--quick

Prints one JSON object:

- ``lineage_f1``: pairwise F1 over sessions: same name and version if and only if the same true version;
  ``agents_f1`` likewise of names and agents; ``exact_f1`` of ``harness_id``, for comparison;
- ``versions_per_edit``: new versions for each true edit (1 is right);
- ``ingest_overhead``: time for names and versions over the time for all else (reading, assembly,
  governance, writing), the middle one of three worlds, each in a new lake; ``identity_ms_per_call`` and
  ``ingest_ms_per_call`` of that one. What is told apart is the worst of the three;
- ``ms_per_new_version``: of it, what each commit of new versions takes. ``--quick`` has a new version for every
  23 calls, the whole run for every 150, so the share is larger there.
"""

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from governance.governor import Governor
from governance.passes.identity import IdentityPass, LineageRegister
from governance.passes.select import SelectedBatch
from governance.policy import load_bundle
from governance.quality import RowGate
from governance.redact import build_redactor
from lakehouse.lake import Lake
from trajectory.assembly import Assembler
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.harness.lineage import FormKey, HarnessVersion, Sighting

SESSIONS = 1_000
QUICK = 150
ROUNDS = 3
CALLS = 3
BATCH = 60
VERSIONS = 4
KEY = b"k" * 32
T0 = datetime(2026, 11, 2, 8, tzinfo=UTC)
CLIENT = ClientIdentity("acme", "shop", "prod", "k1", ("debug", "train_sft"))

AGENTS = ("triage", "refund", "delivery", "billing", "returns")
SHARED = (
    "Answer in the language of the customer.", "Never promise what the shop cannot keep.",
    "Ask for the number of the order before you look anything up.",
    "Read the answer of a tool before you act on it.", "Use one short paragraph, no lists.",
    "If a tool fails twice, say so and stop.", "Never show prices without tax.",
    "Do not guess; look it up.", "Keep private data out of your answers.",
    "When the customer is angry, stay calm and polite.",
)  # fmt: skip
OWN = {
    "triage": "Find out what the customer wants and hand over to the agent who knows it best.",
    "refund": "Decide whether money goes back, and how much of it.",
    "delivery": "Say where the parcel is and when it will arrive.",
    "billing": "Explain every line of an invoice, and correct what is wrong.",
    "returns": "Send labels for parcels that come back, and check what was in them.",
}
NEW = (
    "Offer a voucher when the parcel was late.", "Write the summary first, then the details.",
    "Thank the customer at the end.", "Hand over to a person when somebody asks for one.",
    "Check the stock before you promise a replacement.", "Use the customer's own words.",
)  # fmt: skip
MOMENT = (
    "<env>\nWorking directory: {folder}\nPlatform: {platform}\nToday's date: {date}\n</env>",
    "It is {clock} on {day}. Your session is {session}, ticket no. {ticket}.",
    "You serve {person}; {tokens} tokens are left. Notes: {folder}/notes/{session}.md",
    "gitStatus: This is the git status at the start.\nCurrent branch: {branch}\n\nStatus:\n{status}",
)


class Version:
    """A true version of an agent's harness."""

    def __init__(self, agent: str, number: int, lines: Sequence[str]) -> None:
        self.agent, self.number, self.lines = agent, number, tuple(lines)

    def edited(self, draw: random.Random) -> "Version":
        """Return the next version: a sentence more, less, or another one."""
        lines = list(self.lines)
        at = draw.randrange(1, len(lines))
        new = draw.choice([line for line in NEW if line not in lines])
        lines[at : at + draw.choice((0, 1))] = draw.choice(([new], [new], []))
        if tuple(lines) == self.lines:
            lines.append(new)
        return Version(self.agent, self.number + 1, lines)

    def rendered(self, draw: random.Random, at: datetime) -> str:
        """Return the prompt as a call sends it at a moment."""
        values = {
            "folder": draw.choice(("/home/{}/shop", "/Users/{}/work/shop", "/srv/{}")).format(
                draw.choice(("ann", "bo", "ci"))
            ),
            "platform": draw.choice(("linux", "darwin", "win32")),
            "date": at.strftime(draw.choice(("%Y-%m-%d", "%B %d, %Y", "%d.%m.%Y"))),
            "clock": at.strftime(draw.choice(("%H:%M", "%H:%M:%S", "%I:%M %p"))),
            "day": at.strftime(draw.choice(("%A, %d %B %Y", "%a %b %d %Y"))),
            "session": f"{draw.getrandbits(128):032x}", "ticket": draw.randrange(10**6),
            "person": draw.choice(("Mrs. Anna Schmidt", "Mr. John Miller", "a customer of ours")),
            "tokens": f"{draw.randrange(10**5):,}", "branch": draw.choice(("main", "fix/till")),
            "status": draw.choice(("(clean)", " M till.py\n?? notes.txt", "M  a.py")),
        }  # fmt: skip
        # The person's own line keeps its shape: that nobody is named there is another sentence.
        values["person"] = draw.choice(("Mrs. Anna Schmidt", "Mr. John Miller"))
        return "\n".join([*self.lines, "", *(part.format(**values) for part in MOMENT)])


def versions(draw: random.Random) -> list[Version]:
    """Return the true versions of all agents."""
    found = []
    for agent in AGENTS:
        shared = draw.sample(SHARED, 8)
        one = Version(agent, 1, (f"You are the {agent} agent of a shop.", OWN[agent], *shared))
        found.append(one)
        for _ in range(VERSIONS - 1):
            one = one.edited(draw)
            found.append(one)
    return found


SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string", "description": "Number of the order."}},
    "required": ["order"],
}


def tools(agent: str) -> list[tuple[str, str]]:
    """Return names and descriptions of an agent's tools."""
    return [("look_up", "Looks an order up."), (f"{agent}_order", f"Does the {agent} of an order.")]


def request(dialect: str, agent: str, prompt: str, said: list[str], seed: int) -> tuple[str, Any]:
    """Return path and body of a call in a dialect."""
    turns = [("user" if at % 2 == 0 else "assistant", text) for at, text in enumerate(said)]
    named = [{"name": name, "description": about} for name, about in tools(agent)]
    if dialect == "anthropic":
        listed = [{**one, "input_schema": SCHEMA} for one in named]
        messages = [{"role": role, "content": text} for role, text in turns]
        return "/v1/messages", {
            "model": "m", "max_tokens": 512, "temperature": (seed % 100) / 100, "system": prompt,
            "messages": messages, "tools": listed,
        }  # fmt: skip
    if dialect == "gemini":
        declared = [{**one, "parameters": {**SCHEMA, "type": "OBJECT"}} for one in named]
        contents = [
            {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
            for role, text in turns
        ]
        return "/v1beta/models/m:generateContent", {
            "systemInstruction": {"parts": [{"text": prompt}]}, "contents": contents,
            "tools": [{"functionDeclarations": declared}], "generationConfig": {"seed": seed},
        }  # fmt: skip
    strict = {**SCHEMA, "additionalProperties": False}
    if dialect == "responses":
        flat = [{"type": "function", **one, "parameters": strict, "strict": True} for one in named]
        messages = [{"role": role, "content": text} for role, text in turns]
        return "/v1/responses", {
            "model": "m", "instructions": prompt, "input": messages, "tools": flat,
            "temperature": (seed % 100) / 100, "store": False,
        }  # fmt: skip
    inner = [{"type": "function", "function": {**one, "parameters": strict}} for one in named]
    messages = [{"role": role, "content": text} for role, text in [("system", prompt), *turns]]
    return "/v1/chat/completions", {
        "model": "m",
        "messages": messages,
        "tools": inner,
        "seed": seed,
    }


def answer(dialect: str, number: int, text: str) -> Any:
    """Return the body of an answer in a dialect."""
    if dialect == "anthropic":
        return {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m-1",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 9, "output_tokens": 9},
        }  # fmt: skip
    if dialect == "gemini":
        content = {"role": "model", "parts": [{"text": text}]}
        return {
            "candidates": [{"content": content, "finishReason": "STOP"}], "modelVersion": "m-1",
            "responseId": f"gem-{number}",
        }  # fmt: skip
    if dialect == "responses":
        said = {"type": "message", "id": f"o{number}", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip
        return {"id": f"resp_{number}", "object": "response", "model": "m-1", "status": "completed",
                "output": [said]}  # fmt: skip
    message = {"role": "assistant", "content": text}
    return {
        "id": f"chatcmpl-{number}", "object": "chat.completion", "model": "m-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }  # fmt: skip


def world(sessions: int, seed: int) -> Iterator[tuple[Exchange, Version]]:
    """Yield the calls of all sessions in order of time, with the version that each was made by.

    An agent goes from version to version, and two versions overlap, as in a canary.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret
    every = versions(draw)
    number = 0
    for session in range(sessions):
        agent = draw.randrange(len(AGENTS))
        reached = min(
            VERSIONS - 1, max(0, int(session * VERSIONS / sessions) - draw.choice((0, 0, 1)))
        )
        version = every[agent * VERSIONS + reached]
        dialect = draw.choice(("chat", "responses", "anthropic", "gemini"))
        said: list[str] = []
        for call in range(CALLS):
            at = T0 + timedelta(minutes=37 * session, seconds=20 * call)
            said.append(f"Question {call} of customer {session}: what about order {session + 7}?")
            prompt = version.rendered(draw, at)
            path, body = request(dialect, version.agent, prompt, said, draw.randrange(10**9))
            said.append(f"Answer {call} for customer {session}.")
            number += 1
            yield (
                exchange(number, at, session, path, body, answer(dialect, number, said[-1])),
                version,
            )


def exchange(number: int, at: datetime, session: int, path: str, body: Any, said: Any) -> Exchange:
    """Return an exchange as the spool gives it."""
    headers = (("content-type", "application/json"), ("x-headrace-session", f"s-{session}"))
    return Exchange(
        exchange_id=f"{number:032x}", client=CLIENT, route="bench", mode="base_url",
        upstream="https://api.example:443", started_at=at, first_byte_at=at,
        ended_at=at + timedelta(seconds=1),
        request=HttpRequest("POST", path, "", headers, json.dumps(body).encode()),
        response=HttpResponse(200, (("content-type", "application/json"),), json.dumps(said).encode()),
        outcome=ExchangeOutcome.COMPLETE, position=SpoolPosition("w", 0, number),
    )  # fmt: skip


class TimedRegister:
    """The lake's register, with what numbering took when something was new."""

    def __init__(self, register: LineageRegister) -> None:
        self._register = register
        self._known: set[FormKey] = set()
        self.commits: list[float] = []

    def number(self, sightings: Sequence[Sighting]) -> dict[FormKey, HarnessVersion]:
        """See :class:`LineageRegister`."""
        begun = time.perf_counter()
        found = self._register.number(sightings)
        if not self._known.issuperset(found):
            self._known.update(found)
            self.commits.append(time.perf_counter() - begun)
        return found


class TimedPass(IdentityPass):
    """The pass, with what it took."""

    seconds = 0.0

    def identify(self, selected: SelectedBatch) -> SelectedBatch:
        """See :class:`IdentityPass`."""
        begun = time.perf_counter()
        try:
            return super().identify(selected)
        finally:
            self.seconds += time.perf_counter() - begun


def pairwise_f1(found: Sequence[Any], true: Sequence[Any]) -> float:
    """Return F1 over all pairs: together in ``found`` against together in ``true``."""

    def pairs(groups: Sequence[Any]) -> int:
        return sum(n * (n - 1) // 2 for n in Counter(groups).values())

    both = pairs(list(zip(found, true, strict=True)))
    return 2 * both / max(1, pairs(found) + pairs(true))


def measure(sessions: int, seed: int, folder: str) -> dict[str, Any]:
    """Govern a world and compare."""
    bundle = load_bundle()
    lake = Lake.open(folder)
    governor = Governor(
        bundle, build_redactor(bundle.redaction.spec, pseudonym_key=KEY, base=bundle.path),
        message_key=KEY, pseudonym_key=KEY, known=lake.known_content(), consents=lake.consents(),
        gate=RowGate(bundle.quality.spec),
    )  # fmt: skip
    register = TimedRegister(lake.lineages())
    timed = TimedPass(register, governor._namer)
    governor._identity = timed
    assembler = Assembler(KEY)
    calls = list(world(sessions, seed))
    truth = {one.exchange_id: version for one, version in calls}
    begun, warm = time.perf_counter(), 0.0
    for number, start in enumerate(range(0, len(calls), BATCH)):
        read = [read_exchange(one) for one, _ in calls[start : start + BATCH]]
        batch = governor.judge(assembler.assemble(read))
        lake.append(batch, app_id="bench", version=number)
        if number == 0:  # the detectors were loading
            begun, timed.seconds, warm = time.perf_counter(), 0.0, len(read)
            register.commits.clear()
    seconds = time.perf_counter() - begun - timed.seconds
    rows = lake.query(
        "SELECT exchange_id, harness_id, harness_name, harness_version FROM steps ORDER BY exchange_id"
    ).to_pylist()
    first = [row for row in rows if int(row["exchange_id"], 16) % CALLS == 1]
    true = [truth[row["exchange_id"]] for row in first]
    labels = [(one.agent, one.number) for one in true]
    found = {(row["harness_name"], row["harness_version"]) for row in rows}
    names = {row["harness_name"] for row in rows}
    edits = len(set(labels)) - len({one.agent for one in true})
    split = sum(
        len({(row["harness_name"], row["harness_version"]) for row in rows[at : at + CALLS]}) > 1
        for at in range(0, len(rows), CALLS)
    )
    return {
        "sessions": len(first), "calls": len(rows), "true_versions": len(set(labels)),
        "versions": len(found), "names": len(names),
        "lineage_f1": pairwise_f1([(r["harness_name"], r["harness_version"]) for r in first], labels),
        "agents_f1": pairwise_f1([r["harness_name"] for r in first], [one.agent for one in true]),
        "exact_f1": pairwise_f1([r["harness_id"] for r in first], labels),
        "versions_per_edit": (len(found) - len(names)) / max(1, edits),
        "sessions_of_several_versions": split,
        "ingest_overhead": timed.seconds / seconds,
        "identity_ms_per_call": 1000 * timed.seconds / (len(calls) - warm),
        "ingest_ms_per_call": 1000 * seconds / (len(calls) - warm),
        "ms_per_new_version": 1000 * median(register.commits),
    }  # fmt: skip


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few sessions, within 50 seconds")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    rounds = []
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            sessions = QUICK if chosen.quick else chosen.sessions
            rounds.append(measure(sessions, chosen.seed + number, folder))
    rounds.sort(key=lambda one: one["ingest_overhead"])
    found = rounds[ROUNDS // 2]
    found |= {name: min(one[name] for one in rounds) for name in ("lineage_f1", "agents_f1")}
    found["versions_per_edit"] = max(one["versions_per_edit"] for one in rounds)
    print(json.dumps({"benchmark": "identity", "seed": chosen.seed, **found}))


if __name__ == "__main__":
    main()
