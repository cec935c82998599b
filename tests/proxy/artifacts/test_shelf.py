"""Routes with artefacts, through both listeners: the model sees them, the record is the client's own."""

import asyncio
import gc
import json
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.artifacts.bodies import ChatBody
from proxy.artifacts.shelf import AppliedArtifacts, RouteArtifacts, Shelf
from proxy.clients.shared_counters import SharedCounters
from proxy.config import GatewayConfig, Route
from proxy.housekeeping import Housekeeping
from proxy.routes.router import Router
from proxy.spool.keys import KeyRing
from proxy.telemetry.counters import Counters
from tests.proxy.gateway_process import GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from trajectory.exchange import Exchange

NAMES = ("style", "facts", "asking", "tools")
TOOL = {"name": "refund", "description": "Pays back.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": TOOL}]
SPECS: dict[str, dict[str, Any]] = {
    "style": {"harness": {"append": "Be brief."}},
    "facts": {
        "tenant": "acme",
        "memory": {
            "best": 2,
            "facts": [
                {"id": "days", "text": "A refund takes three days."},
                {"id": "cash", "text": "A refund is never paid in cash."},
                {"id": "open", "text": "The shop opens at nine."},
            ],
        },
    },
    "asking": {
        "skill": {
            "title": "Paying back",
            "trigger": {"phrases": ["money back"], "tools": ["refund"]},
            "procedure": "Ask for the order's number first.",
        }
    },
    "tools": {
        "tools": {
            "patch": [
                {"op": "test", "path": "/refund/description", "value": "Pays back."},
                {"op": "replace", "path": "/refund/description", "value": "Pays back at most 50."},
            ]
        }
    },
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "I want my money back: how does a refund go?"},
        ],
        "tools": TOOLS,
    },
    "/v1/responses": {
        "model": "m",
        "instructions": "You help.",
        "input": "I want my money back: how does a refund go?",
        "tools": [{"type": "function", **TOOL}],
    },
    "/v1/messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "You help."}],
        "messages": [
            {"role": "user", "content": "I want my money back: how does a refund go?"},
        ],
        "tools": [
            {"name": "refund", "description": "Pays back.", "input_schema": {"type": "object"}}
        ],
    },
}


def write(folder: Path, name: str, version: str, content: Any, **trials: str) -> None:
    """Put a version in its place and let it serve, as the registry does."""
    home = folder / name / version
    home.mkdir(parents=True, exist_ok=True)
    said = {"proposer": "jo", "licence": "CC0-1.0", **content} if content else content
    (home / "artifact.json").write_text(json.dumps(said))
    point(folder, name, version, **trials)


def point(folder: Path, name: str, version: str, share: float | None = None, **trials: str) -> None:
    fresh = folder / name / "live.new"
    fresh.write_text(json.dumps({"version": version, "trials": trials, "share": share}))
    fresh.replace(folder / name / "live.json")


def model(_request: ReceivedRequest) -> Reply:
    return as_json({"id": "x", "object": "answer"})


@dataclass
class Floor:
    """A gateway with a route that has artefacts and one that has none."""

    gateway: GatewayProcess
    upstream: Upstream
    folder: Path
    calls: int = field(default=0)

    def ask(
        self, path: str, body: bytes, route: str = "shop", **headers: str
    ) -> tuple[Any, Exchange]:
        """Send a body; return what the model got and what was recorded."""
        answer = httpx.post(
            f"{self.gateway.url}/{route}{path}",
            content=body,
            headers={
                "authorization": f"Bearer {self.gateway.key}",
                "content-type": "application/json",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
            trust_env=False,
            timeout=60,
        )
        assert answer.status_code == 200
        return self.upstream.seen[-1].body, self.gateway.exchange()

    def counted(self) -> dict[tuple[str, str], float]:
        text = httpx.get(f"{self.gateway.admin}/metrics", trust_env=False).text
        lines = [
            line.split('"')
            for line in text.splitlines()
            if line.startswith("headrace_artifacts_total{")
        ]
        return {
            (named["artifact"], named["outcome"]): float(line[-1].split()[-1])
            for line in lines
            if (named := _labels(line))["route"] != "-"
        }

    def until(self, wanted: str, *, absent: bool = False) -> None:
        """Wait until requests are given a text, or not any more."""
        until = time.monotonic() + 60
        while (wanted.encode() in self.ask(*chat())[0]) == absent:
            assert time.monotonic() < until
            time.sleep(0.05)


def _labels(line: list[str]) -> dict[str, str]:
    names = [part.strip("{,=").rpartition("{")[2].strip(",=") for part in line[:-1:2]]
    return dict(zip(names, line[1::2], strict=True))


def chat() -> tuple[str, bytes]:
    path = "/v1/chat/completions"
    return path, json.dumps(BODIES[path]).encode()


@pytest.fixture(scope="module", params=["plain", "mitmproxy"])
def floor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Floor]:
    home = tmp_path_factory.mktemp("artifacts")
    folder = home / "artifacts"
    for name in NAMES:
        write(folder, name, "0001", SPECS[name])
    with Upstream(model) as upstream:
        route = {"upstream": upstream.url}
        routes = [
            {"name": "shop", **route, "evolve": {"artifacts": NAMES, "canary": 0.5}},
            {"name": "tight", **route, "evolve": {"artifacts": NAMES, "tokens": 60}},
            {"name": "hasty", **route, "evolve": {"artifacts": NAMES, "milliseconds": 1e-6}},
            {"name": "nothing", **route, "evolve": {"artifacts": ["nowhere"]}},
            {"name": "plain", **route},
        ]
        settings = {"routes": routes, "artifacts": str(folder), "listener": request.param}
        with GatewayProcess(home, settings) as gateway:
            yield Floor(gateway, upstream, folder)


@pytest.mark.parametrize("path", BODIES)
def test_the_model_sees_artefacts_and_the_record_is_what_the_client_wrote(
    floor: Floor, path: str
) -> None:
    body = json.dumps(BODIES[path], indent=3).encode()
    sent, exchange = floor.ask(path, body)
    text, said = sent.decode(), json.loads(sent)
    block = '<headrace-artifact name=\\"style@0001\\">\\nBe brief.\\n</headrace-artifact>'
    assert text.count(block) == 1
    assert "A refund takes three days." in text
    assert "A refund is never paid in cash." in text
    assert "opens at nine" not in text
    assert "Ask for the order's number first." in text
    assert "Pays back at most 50." in text
    changed = {"messages": "chat" in path, "instructions": True, "system": True, "tools": True}
    assert {k: v for k, v in said.items() if not changed.get(k)} == {
        k: v for k, v in BODIES[path].items() if not changed.get(k)
    }
    assert exchange.request.body == body
    assert exchange.artifacts == (
        "style@0001",
        "facts@0001=days+cash",
        "asking@0001",
        "tools@0001",
    )


def test_a_route_without_artefacts_passes_the_clients_bytes(floor: Floor) -> None:
    body = json.dumps(BODIES["/v1/messages"], indent=3).encode()
    sent, exchange = floor.ask("/v1/messages", body, route="plain")
    assert sent == body == exchange.request.body
    assert exchange.artifacts == ()


def test_what_does_not_fit_is_not_shown(floor: Floor) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello!"}]}
    sent, exchange = floor.ask("/v1/chat/completions", json.dumps(body).encode())
    system, user = json.loads(sent)["messages"]
    assert system["role"] == "system"
    assert user == body["messages"][0]
    assert exchange.artifacts == ("style@0001",)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", b'{"input": "refund"}'),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": '),
        ("/v1/chat/completions", b'{"messages": 7}'),
        ("/v1/chat/completions", b'{"messages": [], "temperature": NaN}'),
        ("/v1/chat/completions", b'{"messages": [], "n": 1, "n": 2}'),
        ("/v1/chat/completions", b'{"messages": [], "n": 1,}'),
        ("/v1/chat/completions", b'{"messages": []} {}'),
        ("/v1/messages", b"[1, 2]"),
    ],
)
def test_what_is_no_model_request_passes_unchanged(floor: Floor, path: str, body: bytes) -> None:
    sent, exchange = floor.ask(path, body)
    assert sent == body == exchange.request.body
    assert exchange.artifacts == ()


@pytest.mark.parametrize(
    ("route", "counted"), [("hasty", ("style", "slow")), ("nothing", ("nowhere", "missing"))]
)
def test_a_failure_leaves_the_request_as_it_was_and_is_counted(
    floor: Floor, route: str, counted: tuple[str, str]
) -> None:
    path, body = chat()
    sent, exchange = floor.ask(path, body, route=route)
    assert sent == body
    assert exchange.artifacts == ()
    assert floor.counted()[counted] >= 1


def test_more_than_the_cap_is_left_out(floor: Floor) -> None:
    path, body = chat()
    sent, exchange = floor.ask(path, body, route="tight")
    assert exchange.artifacts[0] == "style@0001"
    assert len(exchange.artifacts) < len(NAMES)
    system = json.loads(sent)["messages"][0]["content"]
    assert len(system.encode()) - len(b"You help.") <= 60 * 3
    assert floor.counted()["asking", "over_cap"] >= 1


def test_other_tenants_see_no_facts(floor: Floor) -> None:
    content = {**SPECS["facts"], "tenant": "other"}
    write(floor.folder, "facts", "0002", content)
    floor.until("three days", absent=True)
    _, exchange = floor.ask(*chat())
    assert exchange.artifacts == ("style@0001", "asking@0001", "tools@0001")
    point(floor.folder, "facts", "0001")
    floor.until("three days")


def test_promotion_erasure_and_damage_need_no_restart(floor: Floor) -> None:
    write(floor.folder, "style", "0002", {"harness": {"append": "Be kind."}})
    floor.until("Be kind.")
    write(floor.folder, "style", "0002", None)  # an erasure took all of it
    floor.until("Be kind.", absent=True)
    (floor.folder / "style" / "0002" / "artifact.json").write_text("{")
    until = time.monotonic() + 60
    while ("style", "malformed") not in floor.counted():
        assert time.monotonic() < until
        sent, exchange = floor.ask(*chat())
        assert b"Be kind" not in sent
    assert exchange.artifacts[0].startswith("facts@0001")
    point(floor.folder, "style", "0001")
    floor.until("Be brief.")


def test_a_canary_gets_its_share_of_the_sessions(floor: Floor) -> None:
    write(floor.folder, "style", "0003", {"harness": {"append": "Be quick."}})
    point(floor.folder, "style", "0001", canary="0003")
    path, body = chat()
    until = time.monotonic() + 60

    def told() -> dict[str, str]:
        return {
            session: floor.ask(path, body, x_headrace_session=session)[1].artifacts[0]
            for session in map(str, range(12))
        }

    while "style@0003" not in told().values():  # the gateway may read the pointer amid the sessions
        assert time.monotonic() < until
    versions, again = told(), told()
    assert {*versions.values()} == {"style@0001", "style@0003"}
    assert again == versions
    assert floor.ask(path, body)[1].artifacts[0] == "style@0001", "no session, no trial"
    point(floor.folder, "style", "0001")
    floor.until("Be quick.", absent=True)


def arms(floor: Floor, sessions: int) -> list[str]:
    """The arms of so many sessions, as captures tell them."""
    path, body = chat()
    found = [floor.ask(path, body, x_headrace_session=f"arm-{n}")[1] for n in range(sessions)]
    return [label for one in found for label in one.artifacts if label.startswith("~")]


def test_a_trial_has_its_own_share_and_captures_tell_the_arm_of_each_session(floor: Floor) -> None:
    write(floor.folder, "style", "0004", {"harness": {"append": "Be polite."}})
    point(floor.folder, "style", "0001", share=1.0, canary="0004")
    floor_has = time.monotonic() + 60
    while {*arms(floor, 3)} != {"~style@0004 canary"}:
        assert time.monotonic() < floor_has
    point(floor.folder, "style", "0001", share=0.5, canary="0004")
    while {*arms(floor, 16)} != {"~style@0004 canary", "~style@0004 control"}:
        assert time.monotonic() < floor_has
    point(floor.folder, "style", "0001")
    floor.until("Be polite.", absent=True)


def test_a_first_version_is_tried_against_none(floor: Floor) -> None:
    point(floor.folder, "style", "", share=0.5, canary="0001")
    until = time.monotonic() + 60
    while {*(told := arms(floor, 64))} != {"~style@0001 canary", "~style@0001 control"}:
        assert time.monotonic() < until
    assert 12 <= told.count("~style@0001 canary") <= 52
    point(floor.folder, "style", "0001")
    while arms(floor, 2):
        assert time.monotonic() < until


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"capture": "tokens"}, "capture: tokens exclude each other"),
        ({"kind": "tool"}, "kind: model"),
        ({"upstream": (), "model": "m", "shadow": 0.5}, "shadow exclude each other"),
        ({"evolve": {"artifacts": ["a", "a"]}}, "named twice"),
        ({"evolve": {"artifacts": ["../a"]}}, "no name of an artefact"),
    ],
)
def test_a_route_that_cannot_hold_what_it_says_is_refused(
    change: dict[str, Any], said: str
) -> None:
    route = {"name": "r", "upstream": "http://h", "evolve": {"artifacts": ["a"]}, **change}
    with pytest.raises(ValidationError, match=said):
        GatewayConfig.model_validate({"routes": [route]})


@st.composite
def growing(draw: st.DrawFn) -> list[tuple[bytes, str | None]]:
    """Bodies of a conversation's calls, each longer than the one before, and who sends it."""
    words = st.lists(st.sampled_from(["refund", "Cash", "money back", "nine", "lamp"]), max_size=3)
    times = st.sampled_from([1, 20, 300])
    role = st.sampled_from(["user", "assistant", "system"])
    said = draw(st.lists(st.tuples(role, words, times), min_size=1, max_size=14))
    messages = [
        {"role": role, "content": f"{' '.join(words)}. " * times} for role, words, times in said
    ]
    calls = []
    for count in range(1, len(messages) + 1, draw(st.integers(1, 3))):
        value = {"model": "m", "messages": messages[:count], "tools": TOOLS}
        calls.append((json.dumps(value).encode(), draw(st.sampled_from([None, "shop"]))))
    return calls


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    folder = tmp_path_factory.mktemp("shelf")
    told = {**SPECS, "style": {"harness": {"agent": "shop", "append": "Be brief."}}}
    for name in NAMES:
        write(folder, name, "0001", told[name])
    return Shelf(folder, NAMES)


@settings(deadline=None)
@given(calls=growing(), tokens=st.sampled_from([25, 60, 1000]))
def test_a_known_conversation_is_given_what_a_new_one_is(
    shelf: Shelf, calls: list[tuple[bytes, str | None]], tokens: int
) -> None:
    evolve = {"artifacts": NAMES, "tokens": tokens, "milliseconds": 1000}
    route = Route.model_validate({"name": "shop", "upstream": "http://a.test", "evolve": evolve})
    known = RouteArtifacts(route, shelf)
    for data, agent in calls:
        told: list[tuple[AppliedArtifacts | None, Any]] = []
        for artifacts in (known, RouteArtifacts(route, shelf)):
            counters = Counters()
            applied = artifacts.apply(
                ChatBody, data, tenant="acme", agent=agent, session=None, counters=counters
            )
            told.append((applied, counters.artifacts))
        assert told[0] == told[1]


def test_an_erased_version_leaves_the_memory_of_a_route_that_nobody_calls(
    tmp_path: Path,
) -> None:
    write(tmp_path, "style", "0001", SPECS["style"])
    route = {"name": "shop", "upstream": "http://a.test", "evolve": {"artifacts": ["style"]}}
    given = {"artifacts": str(tmp_path), "routes": [route]}
    config = GatewayConfig.model_validate(given)
    router, counters = Router(config), Counters()
    (plan,) = router.plans
    assert plan.artifacts is not None
    applied = plan.artifacts.apply(
        ChatBody, chat()[1], tenant="acme", agent=None, session=None, counters=counters
    )
    assert applied is not None
    assert b"Be brief." in applied.body
    held = weakref.ref(router.shelf.live()[0])
    write(tmp_path, "style", "0001", None)  # an erasure took all of it
    housekeeping = Housekeeping(
        config, router=router, ledger=SharedCounters(tmp_path / "counts"), keys=KeyRing(bytes(32)),
        certificate=None, spool=None, counters=counters,
    )  # fmt: skip

    async def keep_house() -> None:
        task = asyncio.create_task(housekeeping.run())
        until = time.monotonic() + 60
        while held() is not None:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
            gc.collect()
        task.cancel()

    asyncio.run(keep_house())
