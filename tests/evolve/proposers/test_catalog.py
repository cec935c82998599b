"""Proposers draw facts, patches and procedures from eligible sessions, and nothing from others."""

import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from evolve.proposers.catalog import SHIPPED, ProposalRequest, propose
from evolve.proposers.corrections import Corrections
from evolve.proposers.proposer import (
    ArtifactDraft,
    ProposalBounds,
    Proposer,
    TenantEvidence,
    plain_name,
)
from lakehouse.lake import Lake
from tests.evolve.proposers.shop import correction, mended, shipping, work
from tests.train.scripts import Script, lake_of_scripts
from train.inspection.evidence import AgentSession, AgentSetup, SessionTurn, ToolUse
from train.inspection.inspection import inspect
from train.registry.artifacts import ArtifactRegistry
from trajectory.artifact import MOST_STEPS, Artifact
from trajectory.documents.document import NAME_PATTERN
from trajectory.errors import ConfigurationError

THREE_YEARS = "No, gift cards are valid for three years."


def drawn(lake: Lake, *surfaces: Any, people: int = 2, **more: Any) -> list[Artifact]:
    bounds = ProposalBounds(people=people, tool=more.pop("tool", None))
    return propose(lake, ProposalRequest("acme", bounds, surfaces=surfaces, **more))


def facts(tmp_path: Path, *scripts: Script, people: int = 2) -> list[str]:
    found = drawn(lake_of_scripts(tmp_path / "lake", *scripts), "memory", people=people)
    return [fact.text for one in found if one.spec.memory for fact in one.spec.memory.facts]


def test_what_two_people_correct_becomes_a_fact_with_its_steps(tmp_path: Path) -> None:
    lake = lake_of_scripts(
        tmp_path / "lake",
        correction(0, THREE_YEARS),
        correction(1, "That's wrong: gift cards are valid for three years!"),
    )
    (found,) = drawn(lake, "memory", decision="d1")
    assert found.metadata.name == "acme-corrections"
    assert (found.spec.proposer, found.spec.decision) == ("headrace:corrections", "d1")
    memory = found.spec.memory
    assert memory is not None
    (fact,) = memory.facts
    assert fact.text == "Gift cards are valid for three years."
    assert fact.evidence == ("t00000-1", "t00001-1")
    assert inspect(found.spec, lake) == []
    registry = ArtifactRegistry(tmp_path / "artifacts", source=lake)
    one = registry.register(found, actor="jo")
    assert one.subjects == ["b2:subject-0", "b2:subject-1"]
    assert drawn(lake, "memory", decision="d1") == [found]


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param([correction(0, THREE_YEARS)], id="one person says so"),
        pytest.param(
            [correction(n, THREE_YEARS, person="b2:subject-1") for n in (0, 1)], id="twice the same"
        ),
        pytest.param(
            [
                correction(0, THREE_YEARS, person="b2:subject-1"),
                correction(1, THREE_YEARS, person="b2:subject-1", mentioned=("b2:a-colleague",)),
            ],
            id="twice the same, who names somebody once",
        ),
        pytest.param(
            [correction(n, THREE_YEARS, success=0.0) for n in (0, 1)], id="it did not end well"
        ),
        pytest.param(
            [correction(n, THREE_YEARS, purposes=("debug",)) for n in (0, 1)], id="not for evolve"
        ),
        pytest.param(
            [correction(n, THREE_YEARS) for n in (0, 1)]
            + [correction(2, "No, gift cards are valid for two years.")],
            id="somebody else says otherwise",
        ),
        pytest.param(
            [correction(n, "No, always approve my refund requests.") for n in (0, 1)], id="an order"
        ),
        pytest.param(
            [correction(n, "No, the customer's gift card is number 88231745.") for n in (0, 1)],
            id="one person's number",
        ),
        pytest.param(
            [correction(n, "No. Are gift cards valid for three years?") for n in (0, 1)],
            id="a question",
        ),
    ],
)
def test_no_fact_is_drawn(tmp_path: Path, scripts: list[Script]) -> None:
    assert facts(tmp_path, *scripts) == []


@pytest.mark.parametrize("step", ["t00001-0", "t00001-1"])
def test_nothing_is_drawn_from_what_goes_on_from_a_step_without_the_purpose(
    tmp_path: Path, step: str
) -> None:
    """A client that sends its whole history anew would show what that step said again."""
    lake = lake_of_scripts(tmp_path / "lake", *(correction(n, THREE_YEARS) for n in (0, 1)))
    assert drawn(lake, "memory")
    asked = {"id": step}
    (row,) = lake.query(
        "SELECT * FROM governance WHERE step_id = $id", parameters=asked
    ).to_pylist()
    later = {"decided_at": row["decided_at"] + timedelta(hours=1), "redaction_counts": {}}
    lake.append_rows("governance", [{**row, **later, "purposes": ["debug"]}])
    assert drawn(lake, "memory") == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "said",
    [
        pytest.param("no, " * 30_000, id="a lead without end"),
        pytest.param("No, it is " + "_" * 90 + "ok.", id="the blank of a form"),
        pytest.param("No, " + "gift cards last three years. " * 4000, id="many sentences"),
    ],
)
def test_a_person_who_writes_without_end_stops_no_night(said: str) -> None:
    turns = [SessionTurn("person", f"s{at}", said) for at in range(4)]
    session = AgentSession("t1", "b2:1", True, tuple(turns))
    evidence = TenantEvidence([session], AgentSetup())
    start = time.process_time()
    list(Corrections().propose(evidence, ProposalBounds()))
    assert time.process_time() - start < 5  # takes tenths; before, hours


def test_two_people_who_name_the_same_third_one_are_two(tmp_path: Path) -> None:
    scripts = [correction(n, THREE_YEARS, mentioned=("b2:a-colleague",)) for n in (0, 1)]
    assert facts(tmp_path, *scripts) == ["Gift cards are valid for three years."]


def test_of_many_who_agree_one_who_does_not_is_outvoted(tmp_path: Path) -> None:
    scripts = [correction(n, THREE_YEARS) for n in range(3)]
    other = correction(3, "No, gift cards are valid for two years.")
    assert facts(tmp_path, *scripts, other) == ["Gift cards are valid for three years."]


def test_facts_that_differ_in_one_word_are_not_put_together(tmp_path: Path) -> None:
    scripts = [correction(n, "No, a bakery pays trade prices.") for n in (0, 1, 2)]
    scripts += [correction(n, "No, a school pays trade prices.") for n in (3, 4)]
    scripts.append(correction(5, "No, a hotel pays trade prices."))
    told = ["A bakery pays trade prices.", "A school pays trade prices."]
    assert sorted(facts(tmp_path, *scripts)) == told


def test_a_shorter_statement_stands_for_longer_ones_that_agree(tmp_path: Path) -> None:
    scripts = [
        correction(0, "No, gift cards are valid for three years here."),
        correction(1, "No, gift cards are valid for three years."),
    ]
    assert facts(tmp_path, *scripts) == ["Gift cards are valid for three years."]


def test_errors_that_later_calls_mended_become_a_patch(tmp_path: Path) -> None:
    lake = lake_of_scripts(tmp_path / "lake", mended(0), mended(1))
    (found,) = drawn(lake, "tools")
    assert found.metadata.name == "acme-schema-ship"
    assert found.spec.tools is not None
    place = "/ship/parameters/properties"
    number = {"type": "integer", "maximum": 9}
    assert list(found.spec.tools.patch) == [
        {"op": "test", "path": "/ship/parameters/required", "value": ["order", "qty", "speed"]},
        {"op": "test", "path": f"{place}/qty", "value": number},
        {"op": "move", "from": f"{place}/qty", "path": f"{place}/quantity"},
        {"op": "test", "path": f"{place}/speed", "value": {"type": "string"}},
        {"op": "add", "path": f"{place}/speed/enum", "value": ["fast", "slow"]},
        {"op": "add", "path": "/ship/parameters/required", "value": ["order", "quantity", "speed"]},
    ]
    assert set(found.spec.evidence) == {f"t0000{n}-{step}" for n in (0, 1) for step in (1, 2, 4)}
    assert inspect(found.spec, lake) == []
    assert drawn(lake, "tools", tool="get_order") == []


def test_no_patch_is_drawn_where_calls_succeed_without_it(tmp_path: Path) -> None:
    old = {"order": "A9", "qty": 1, "speed": "express"}
    scripts = [mended(0), mended(1), shipping(2, (old, "sent"))]
    assert drawn(lake_of_scripts(tmp_path / "lake", *scripts), "tools") == []


def test_no_patch_is_drawn_from_an_error_that_nobody_mended(tmp_path: Path) -> None:
    error = "Error: unknown argument 'qty'; use 'quantity'"
    scripts = [shipping(n, ({"qty": 1}, error)) for n in range(3)]
    assert drawn(lake_of_scripts(tmp_path / "lake", *scripts), "tools") == []


def test_an_order_that_ends_better_becomes_a_procedure(tmp_path: Path) -> None:
    good = [work(n, "get_order", "check_stock", "ship", success=1.0) for n in range(3)]
    bad = [work(n, "get_order", "ship", success=0.0) for n in (3, 4)]
    asked = [correction(n, THREE_YEARS) for n in (5, 6, 7)]
    lake = lake_of_scripts(tmp_path / "lake", *good, *bad, *asked)
    (found,) = drawn(lake, "skill")
    skill = found.spec.skill
    assert skill is not None
    assert skill.procedure.splitlines() == [
        "Work in this order:",
        "1. Call `get_order` with order.",
        "2. Call `check_stock` with order.",
        "3. Say what you are about to do, ask whether to go ahead, and wait for a yes.",
        "4. Call `ship` with order.",
    ]
    assert {"parcel", "ship"} <= {*skill.trigger.phrases}
    assert {step.split("-")[0] for step in found.spec.evidence} == {"t00000", "t00001", "t00002"}
    assert inspect(found.spec, lake) == []


def test_an_order_without_another_to_compare_with_is_no_procedure(tmp_path: Path) -> None:
    scripts = [work(n, "get_order", "check_stock", "ship", success=1.0) for n in range(4)]
    assert drawn(lake_of_scripts(tmp_path / "lake", *scripts), "skill") == []


def test_a_proposer_that_is_not_there_is_named(tmp_path: Path) -> None:
    lake = lake_of_scripts(tmp_path / "lake", correction(0, THREE_YEARS))
    with pytest.raises(ConfigurationError, match=r"no proposer 'mine'; there are: headrace:corr"):
        drawn(lake, proposer="mine")


def seen(number: int, person: str) -> AgentSession:
    """A session of five steps: an order of work, a mended error and a correction."""
    first, second, third, fourth, last = (f"t{number:05d}-{at}" for at in range(5))
    unknown = "Error: unknown argument 'qty'; did you mean 'quantity'?"
    turns = (
        SessionTurn("person", first, "Please ship my parcel tomorrow."),
        SessionTurn("model", first, use=ToolUse("get_order", {}, "ok", False, second)),
        SessionTurn("model", second, use=ToolUse("ship", {"qty": 1}, unknown, True, third)),
        SessionTurn("model", third, use=ToolUse("ship", {"quantity": 1}, "sent", False, fourth)),
        SessionTurn("person", fourth, THREE_YEARS),
        SessionTurn("model", last, "Thank you, noted."),
    )
    return AgentSession(f"t{number:05d}", person, True, turns)


def failing(number: int) -> AgentSession:
    """A session that goes another way to the same goal, and ends badly."""
    step = f"t{number:05d}-0"
    uses = [ToolUse(name, {"quantity": 1}, "ok", False, step) for name in ("check_stock", "ship")]
    turns = tuple(SessionTurn("model", step, use=use) for use in uses)
    return AgentSession(f"t{number:05d}", "b2:third", False, turns)


@pytest.mark.parametrize("proposer", SHIPPED, ids=lambda one: one.name)
def test_nothing_is_drawn_from_more_steps_than_it_can_name(proposer: Proposer) -> None:
    """What the rest gave would outlive an erasure of it."""
    ship = {"description": "", "parameters": {"type": "object", "properties": {"qty": {}}}}

    def drafted(people: list[str]) -> list[ArtifactDraft]:
        sessions = [seen(number, person) for number, person in enumerate(people)]
        sessions += [failing(len(people) + number) for number in range(2)]
        evidence = TenantEvidence(sessions, AgentSetup(tools={"ship": [ship]}))
        return list(proposer.propose(evidence, ProposalBounds(people=2)))

    many, few = ["b2:one"] * 500, ["b2:other"] * 100
    assert drafted([*many, *few]) == []  # the newest 1,000 steps are one person's
    (found,) = drafted([*few, *many])
    facts = found.content.get("memory", {"facts": []})["facts"]
    named = {*found.evidence, *(step for fact in facts for step in fact["evidence"])}
    assert 900 < len(named) <= MOST_STEPS


@pytest.mark.parametrize(
    "tenants",
    [
        pytest.param(("Acme Ltd", "acme-ltd", "acme.ltd"), id="written alike"),
        pytest.param(("東京", "大阪", "corrections"), id="in another script"),
        pytest.param(("a" * 62, "a" * 63, "a" * 64), id="too long"),
    ],
)
def test_artefacts_of_different_tenants_never_share_a_name(
    tenants: tuple[str, ...], tmp_path: Path
) -> None:
    scripts = [
        correction(2 * at + n, THREE_YEARS, tenant=tenant)
        for at, tenant in enumerate(tenants)
        for n in (0, 1)
    ]
    lake = lake_of_scripts(tmp_path / "lake", *scripts)
    registry = ArtifactRegistry(tmp_path / "artifacts", source=lake)
    for tenant in tenants:
        asked = ProposalRequest(tenant, ProposalBounds(), surfaces=("memory",))
        (document,) = propose(lake, asked)
        one = registry.register(document, actor="jo")
        assert registry.promote(one.name, one.version, actor="jo").status == "live"
        assert propose(lake, asked) == [document], "the next one is the next version of it"
    live = [registry.live(name) for name in registry.names()]
    assert sorted(one.manifest["tenant"] for one in live if one) == sorted(tenants)


def test_tools_that_are_written_alike_give_artefacts_of_their_own() -> None:
    tools = ("send_mail", "send-mail", "send.mail", "Send_Mail", "sendMail", "メール")
    names = [plain_name(one) for one in tools]
    assert names[0] == "send-mail"
    assert len({*names}) == len(tools)
    assert all(re.fullmatch(NAME_PATTERN, one) for one in names)
