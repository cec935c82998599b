"""Candidates climb by what the lake says, and are taken back by themselves; a kill at any moment changes nothing."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evolve_traffic import Rows, ShopSession
from evolve.arms import TrialSubject, lived
from evolve.detectors import Counted
from evolve.ladder import ExamResult, TrialRunner
from evolve.plan import decide
from evolve.policy import Exam, Ladder, Rung, TrafficSlice
from evolve.trial_files import TrialState
from proxy.housekeeping import trial_figures
from proxy.telemetry.counters import Counters
from proxy.telemetry.metrics import prometheus
from tests.evolve.trials import LADDER, Shop
from tests.evolve.worlds import AS_OF, FixedLookup, evidence, policy
from tests.train.registry.test_artifacts import document
from train.recipes.settings import SafetySettings
from train.registry.pointer import read_pointer
from train.registry.versions import ModelRegistry
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path).fill()


def begin(shop: Shop, version: str = "0002", **changes: Any) -> TrialState:
    ladder = LADDER.model_copy(update=changes)
    shop.runner.begin("model", "shop", version, Ladder.model_validate(ladder.model_dump()))
    shop.runner.step()
    return shop.files.get("shop")


def days(shop: Shop, most: int, candidate: float, control: float, **more: Any) -> TrialState:
    for _ in range(most):
        shop.day(candidate, control, **more)
        shop.runner.step()
        state = shop.files.get("shop")
        if state.outcome is not None or state.asks is not None or state.rung == "live":
            break
    return state


def test_one_that_is_better_goes_live_and_stays(shop: Shop) -> None:
    first = begin(shop)
    assert (first.rung, first.entered) == ("canary", True)
    pointer = read_pointer(shop.home / "models" / "shop")
    assert pointer is not None
    assert (pointer.trials, pointer.share) == ({"canary": "0002"}, 0.25)
    assert days(shop, 5, 0.2, 0.35).rung == "live"
    live = shop.models.live("shop")
    assert live is not None
    assert (live.version, shop.models.trials("shop")) == ("0002", {})
    for _ in range(3):
        shop.day(0.2, 0.35)
        shop.runner.step()
    assert shop.files.get("shop").outcome == "live"
    assert len(shop.audited("trial.ended")) == 1


def test_one_that_does_harm_is_rolled_back(shop: Shop) -> None:
    begin(shop)
    state = days(shop, 5, 0.6, 0.35)
    assert (state.outcome, state.closed) == ("harm", True)
    assert state.reasons[0].startswith("success is worse: ")
    assert shop.models.trials("shop") == {}
    live = shop.models.live("shop")
    assert live is not None
    assert live.version == "0001"


def test_harm_to_one_slice_is_seen(shop: Shop) -> None:
    begin(shop, slices=(TrafficSlice(tenant="acme"), TrafficSlice(tenant="birch")))
    for _ in range(5):
        shop.day(0.15, 0.35, sessions=240, tenant="birch")
        shop.now -= timedelta(days=1, minutes=-1)
        shop.day(0.8, 0.35, sessions=100, tenant="acme")
        shop.runner.step()
        state = shop.files.get("shop")
        if state.outcome:
            break
    assert state.outcome == "harm"
    assert [reason.partition(" is worse")[0] for reason in state.reasons] == [
        "success in tenant=acme"
    ]


def test_a_guard_stops_one_that_succeeds_more(shop: Shop) -> None:
    begin(shop)
    state = days(shop, 5, 0.3, 0.35, broken=0.4)
    assert state.outcome == "harm"
    assert state.reasons[0].startswith("tool_errors is worse")


def test_a_canary_that_shows_nothing_ends(shop: Shop) -> None:
    begin(shop)
    state = days(shop, 6, 0.35, 0.35, sessions=20)
    assert state.outcome == "max_days"
    assert shop.models.trials("shop") == {}


def test_one_that_its_gate_refused_does_not_climb(shop: Shop) -> None:
    state = begin(shop, "0003")
    assert (state.outcome, state.rung) == ("refused", "gate")
    assert shop.models.trials("shop") == {}


def test_replay_asks_for_an_evaluation(shop: Shop) -> None:
    state = begin(shop, rungs=("replay", "gate", "canary", "live"))
    assert (state.outcome, state.rung) == ("refused", "replay")


EXAMINED = LADDER.model_copy(update={"exam": Exam(safety=SafetySettings())})


@pytest.mark.parametrize("passed", [True, False])
def test_a_ladder_with_an_exam_takes_only_who_passes_it(shop: Shop, passed: bool) -> None:
    asked = []

    def examine(*who: str, control: str, exam: Exam) -> ExamResult:
        asked.append((*who, control, exam))
        return ExamResult(passed, ("largest_safety_loss: 0.1 (limit 0)",))

    shop.examine = examine
    state = shop.runner.begin("model", "shop", "0002", EXAMINED)
    assert asked == [("model", "shop", "0002", "0001", EXAMINED.exam)]
    assert state.exam == ("largest_safety_loss: 0.1 (limit 0)",)
    assert (state.outcome, state.closed) == ((None, False) if passed else ("refused", True))
    shop.runner.step()
    on_canary = shop.models.trials("shop").get("canary")
    assert (on_canary is not None) == passed
    assert shop.files.get("shop").exam == state.exam


def test_what_serves_may_not_change_during_an_exam(shop: Shop) -> None:
    def examine(*_: str, control: str, exam: Exam) -> ExamResult:
        shop.models.promote("shop", "0003", actor="ann", override="it must")
        return ExamResult(True, ())

    shop.examine = examine
    with pytest.raises(ConfigurationError, match="serves since shop@0002 was examined"):
        shop.runner.begin("model", "shop", "0002", EXAMINED)
    assert shop.files.all() == []


def test_a_person_is_asked_before_it_goes_live(shop: Shop) -> None:
    begin(shop, ask=("live",))
    state = days(shop, 4, 0.2, 0.35)
    assert (state.rung, state.asks, state.outcome) == ("canary", "live", None)
    assert shop.models.trials("shop")["canary"].version == "0002"
    state = shop.runner.approve("shop@0002", reason="looks good")
    assert (state.rung, state.asks) == ("live", None)
    with pytest.raises(ConfigurationError, match="asks for nothing"):
        shop.runner.approve("shop")


def test_one_that_waits_for_a_person_is_still_rolled_back(shop: Shop) -> None:
    begin(shop, ask=("live",))
    assert days(shop, 4, 0.2, 0.35).asks == "live"
    assert [days(shop, 1, 0.9, 0.35).outcome for _ in range(3)][-1] == "harm"


def test_the_first_rung_may_ask_too(shop: Shop) -> None:
    state = begin(shop, ask=("gate",))
    assert (state.rung, state.asks) == ("gate", "gate")
    assert shop.models.trials("shop") == {}
    assert shop.runner.approve("shop").rung == "canary"


def test_one_change_is_tried_on_a_route(shop: Shop) -> None:
    begin(shop)
    with pytest.raises(ConfigurationError, match="one change is tried at a time"):
        shop.runner.begin("model", "shop", "0003", LADDER)
    shop.runner.end("shop", reason="enough")
    shop.models.try_out("shop", "0002", "shadow", actor="ann")
    with pytest.raises(ConfigurationError, match="on trial there already"):
        shop.runner.begin("model", "shop", "0003", LADDER)


def test_a_trial_ends_by_hand(shop: Shop) -> None:
    begin(shop)
    state = shop.runner.end("shop", reason="enough")
    assert (state.outcome, state.reasons, state.closed) == ("ended", ("enough",), True)
    assert shop.models.trials("shop") == {}
    with pytest.raises(ConfigurationError, match="is over: ended"):
        shop.runner.end("shop")
    again = begin(shop)
    assert again.trial_id == "model.shop.0002.2"


def test_what_a_person_does_meanwhile_holds(shop: Shop) -> None:
    """Somebody promotes the candidate by hand, or rolls back one that is live: the trial is over."""
    begin(shop)
    shop.models.promote("shop", "0002", actor="ann")
    shop.runner.step()
    state = shop.files.get("shop")
    assert state.outcome == "overtaken"
    live = shop.models.live("shop")
    assert live is not None
    assert live.version == "0002"


def test_a_rollback_by_a_person_is_not_undone(shop: Shop) -> None:
    begin(shop)
    days(shop, 5, 0.2, 0.35)
    shop.models.rollback("shop", actor="ann", reason="no")
    shop.runner.step()
    assert shop.files.get("shop").outcome == "overtaken"
    live = shop.models.live("shop")
    assert live is not None
    assert live.version == "0001"


def waits_to_enter(shop: Shop, version: str, rung: Rung) -> None:
    """Leave a trial as a process that dies between writing its rung down and the pointer leaves it."""
    state = begin(shop, version, ask=("gate",))
    shop.files.write(replace(state, rung=rung, entered=False, asks=None, decision="d-1"))


@pytest.mark.parametrize("rung", ["canary", "live"])
def test_what_a_person_promotes_before_a_rung_is_entered_holds(shop: Shop, rung: Rung) -> None:
    waits_to_enter(shop, "0002", rung)
    shop.models.promote("shop", "0003", actor="ann", override="needed")
    shop.runner.step()
    assert (shop.files.get("shop").outcome, shop.files.get("shop").closed) == ("overtaken", True)
    live = shop.models.live("shop")
    assert live is not None
    assert (live.version, shop.models.trials("shop")) == ("0003", {})


def test_a_candidate_on_its_canary_that_a_person_promotes_before_is_live(shop: Shop) -> None:
    waits_to_enter(shop, "0002", "canary")
    shop.models.promote("shop", "0002", actor="ann")
    shop.runner.step()
    assert shop.files.get("shop").outcome == "overtaken"


def meddle(shop: Shop, monkeypatch: pytest.MonkeyPatch, act: str, does: Callable[[], None]) -> None:
    """Let somebody do something between the ladder's look at the pointer and an act of it."""
    real = getattr(shop.models, act)

    def overtaken(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(shop.models, act, real)
        does()
        return real(*given, **more)

    monkeypatch.setattr(shop.models, act, overtaken)


def promotes_another(shop: Shop) -> Callable[[], None]:
    """Return what a person does at the same moment, through a registry of their own."""
    mine = ModelRegistry(shop.home / "models", source=shop.lake)
    return lambda: void(mine.promote("shop", "0003", actor="ann", override="needed"))


def void(_: object) -> None:
    """Forget what something returns."""


def test_what_a_person_promotes_while_the_ladder_takes_a_drop_back_goes_on_serving(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(shop)
    days(shop, 5, 0.2, 0.35)
    meddle(shop, monkeypatch, "rollback", promotes_another(shop))
    for _ in range(2):
        shop.day(0.7, 0.35)
        shop.runner.step()
    state = shop.files.get("shop")
    assert (state.outcome, state.closed) == ("drop", True)
    assert "shop@0003 serves since a moment ago, and no more shop@0002" in state.reasons[-1]
    assert served(shop) == "0003"


@pytest.mark.parametrize(("act", "last"), [("try_out", "canary"), ("promote", "live")])
def test_what_a_person_promotes_while_the_ladder_enters_a_rung_goes_on_serving(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, act: str, last: Rung
) -> None:
    meddle(shop, monkeypatch, act, promotes_another(shop))
    begin(shop)
    days(shop, 5, 0.2, 0.35)
    state = shop.files.get("shop")
    assert (state.rung, state.outcome, state.closed) == (last, "overtaken", True)
    assert served(shop) == "0003"
    assert shop.models.trials("shop") == {}


def test_what_a_person_tries_while_the_ladder_ends_a_trial_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(shop)
    mine = ModelRegistry(shop.home / "models", source=shop.lake)
    tried = {"actor": "ann", "override": "needed"}
    meddle(
        shop,
        monkeypatch,
        "end_trial",
        lambda: void(mine.try_out("shop", "0003", "canary", **tried)),
    )
    shop.runner.end("shop")
    assert shop.files.get("shop").closed
    assert shop.models.trials("shop")["canary"].version == "0003"


def served(shop: Shop) -> str | None:
    live = shop.models.live("shop")
    return None if live is None else live.version


class SettledDecisions:
    """Notes what became of decisions."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def approve(self, decision_id: str, *, reason: str | None = None) -> None:
        """Note it."""
        self.told.append(("approve", decision_id))

    def reject(self, decision_id: str, *, reason: str | None = None) -> None:
        """Note it."""
        self.told.append(("reject", decision_id))


def test_a_decision_whose_candidate_is_refused_before_it_goes_live_is_rejected(shop: Shop) -> None:
    waits_to_enter(shop, "0003", "live")
    decisions = SettledDecisions()
    TrialRunner(
        shop.files, {"model": (shop.home / "models", shop.models)}, shop.lake, shop.note,
        actor="ladder", routes=shop.routes, clock=lambda: shop.now, decisions=decisions,
    ).step()  # fmt: skip
    assert shop.files.get("shop").outcome == "refused"
    assert decisions.told == [("reject", "d-1")]


def test_a_file_that_cannot_be_read_stops_no_other_trial(shop: Shop) -> None:
    begin(shop)
    torn = shop.home / "trials" / "model.other.0001.json"
    torn.write_text("{}")
    for _ in range(4):
        shop.day(0.8, 0.35)
        with pytest.raises(ConfigurationError, match=r"model\.other\.0001\.json: cannot be read"):
            shop.runner.step()
    assert shop.models.trials("shop") == {}
    torn.unlink()
    assert shop.files.get("shop").outcome == "harm"


def test_the_watch_of_an_artefact_counts_its_own_tenant_alone(shop: Shop) -> None:
    rows = Rows()
    for number in range(40):
        one = ShopSession(
            f"s-{number}",
            ("acme", "birch")[number % 2],
            "ask",
            shop.now + timedelta(minutes=number),
        )
        one.success = one.tenant == "acme"
        one.add_to(rows)
    rows.write(shop.lake)
    subject = TrialSubject("artifact", "style@0002", "style@0001", ("model",), "acme")
    found = lived(shop.lake, subject, shop.now, shop.now + timedelta(days=1))
    assert found == (Counted(20, 0),)


def test_a_drop_after_it_went_live_is_rolled_back(shop: Shop) -> None:
    begin(shop)
    days(shop, 5, 0.2, 0.35)
    for _ in range(2):
        shop.day(0.7, 0.35)
        shop.runner.step()
    state = shop.files.get("shop")
    assert state.outcome == "drop"
    live = shop.models.live("shop")
    assert live is not None
    assert live.version == "0001"


def test_a_shadow_answers_copies_before_it_answers_anybody(tmp_path: Path) -> None:
    shop = Shop(tmp_path, route_shadow=0.5).fill()
    rungs = ("gate", "shadow", "canary", "live")
    assert begin(shop, rungs=rungs, shadow_calls=100).rung == "shadow"
    assert shop.models.trials("shop")["shadow"].version == "0002"
    shop.copies(60)
    shop.now += timedelta(hours=1)
    shop.runner.step()
    assert shop.files.get("shop").rung == "shadow"
    shop.copies(60)
    shop.now += timedelta(hours=1)
    shop.runner.step()
    assert shop.files.get("shop").rung == "canary"
    assert {*shop.models.trials("shop")} == {"canary"}


def test_a_shadow_that_fails_never_answers_anybody(tmp_path: Path) -> None:
    shop = Shop(tmp_path, route_shadow=0.5).fill()
    begin(shop, rungs=("gate", "shadow", "canary", "live"), shadow_calls=400)
    for _ in range(3):
        shop.day(0.3, 0.3, sessions=100)
        shop.now -= timedelta(days=1)
        shop.copies(60, failed=0.8)
        shop.now += timedelta(days=1)
        shop.runner.step()
    state = shop.files.get("shop")
    assert (state.outcome, state.rung) == ("harm", "shadow")
    assert shop.models.trials("shop") == {}


def test_sessions_count_once_and_only_when_they_have_settled(shop: Shop) -> None:
    begin(shop, settle_minutes=24 * 60)
    shop.day(0.3, 0.3)
    shop.runner.step()
    assert not shop.files.get("shop").comparisons
    shop.now += timedelta(days=1)
    for _ in range(2):
        shop.runner.step()
        found = shop.files.get("shop").comparisons["success"].arms
        assert found.sessions == 300
        assert 50 < found.candidate.sessions < 100


def test_failures_that_are_judged_late_let_no_harm_through(shop: Shop) -> None:
    """By the time that a session counts only successes are known, and all of them in both arms."""
    begin(shop, guards=("unjudged",))
    state = days(shop, 5, 0.7, 0.35, late=True)
    assert state.outcome == "harm"
    assert state.reasons[0].startswith("unjudged is worse: ")


def test_a_candidate_that_is_down_fails_the_sessions_that_were_drawn_for_it(shop: Shop) -> None:
    """The live version answers them, and neither arm fails more: that says nothing for the candidate."""
    begin(shop)
    state = days(shop, 5, 0.35, 0.35, down=True)
    assert state.outcome == "harm"
    control = state.comparisons["success"].arms.control
    assert 0.2 < control.events / control.sessions < 0.5
    assert 0.6 < control.sessions / state.comparisons["success"].arms.sessions < 0.9


def spoken(shop: Shop, name: str, *minutes: int, auxiliary: bool = False) -> None:
    """Write a session of the candidate's arm with a call in each of these minutes from now."""
    rows = Rows()
    one = ShopSession(name, "acme", "ask", shop.now, model="shop@0002")
    one.add_to(rows)
    first = replace(rows.steps[0], tool_calls=(), ext='{"model_arm": "shop@0002 canary"}')
    at = [shop.now + timedelta(minutes=minute) for minute in minutes]
    rows.steps[:] = [
        replace(
            first, step_id=f"{name}-s{minute}", exchange_id=f"{name}-x{minute}", started_at=begun,
            ended_at=begun, role_in_graph="auxiliary" if auxiliary and not number else "agent",
        )
        for number, (minute, begun) in enumerate(zip(minutes, at, strict=True))
    ]  # fmt: skip
    rows.governance[:] = []
    rows.write(shop.lake)


def counted(shop: Shop, *, minutes: int) -> int:
    """Look after some minutes; return the candidate's sessions so far."""
    shop.now += timedelta(minutes=minutes)
    shop.runner.step()
    found = shop.files.get("shop").comparisons
    return found["success"].arms.candidate.sessions if found else 0


def test_a_session_counts_when_it_has_been_silent_and_only_once(shop: Shop) -> None:
    begin(shop, settle_minutes=60)
    begun = shop.now
    spoken(shop, "long", 1, 50, 100, 150)
    assert (
        counted(shop, minutes=149) == 0
    )  # some calls of it are to come: they are in the lake by now
    assert counted(shop, minutes=62) == 1
    shop.now = begun
    spoken(shop, "again", 300)
    spoken(shop, "again", 1000)
    shop.now = begun + timedelta(minutes=290)
    assert counted(shop, minutes=100) == 2
    assert counted(shop, minutes=1000) == 2


def test_a_session_that_begins_with_an_auxiliary_call_before_a_look_counts(shop: Shop) -> None:
    begin(shop, settle_minutes=10)
    spoken(shop, "other", 1)
    spoken(shop, "titled", 19, 21, auxiliary=True)
    assert counted(shop, minutes=30) == 1
    assert counted(shop, minutes=30) == 2


def test_a_clock_that_leaps_ends_no_trial(shop: Shop) -> None:
    begin(shop)
    shop.day(0.3, 0.3, sessions=60)
    shop.runner.step()
    back = shop.now
    shop.now += timedelta(days=400)
    shop.runner.step()
    assert shop.files.get("shop").outcome is None
    shop.now = back
    shop.runner.step()
    assert days(shop, 3, 0.7, 0.35).outcome == "harm"


def test_a_trial_begun_by_a_wrong_clock_still_sees_harm(shop: Shop) -> None:
    right = shop.now
    shop.now += timedelta(days=400)
    begin(shop)
    shop.now = right
    shop.runner.step()
    assert days(shop, 3, 0.7, 0.35).outcome == "harm"


def test_a_watch_is_as_long_as_it_was_looked_at(shop: Shop) -> None:
    begin(shop)
    assert days(shop, 5, 0.2, 0.35).rung == "live"
    shop.now += timedelta(days=100)
    shop.runner.step()
    assert shop.files.get("shop").outcome is None


def test_a_candidate_follows_a_decision_that_there_is(shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="there is no decision 'd-1'"):
        shop.runner.begin("model", "shop", "0002", LADDER, decision="d-1")
    assert shop.files.all() == []
    whole = proposed(shop)
    state = shop.runner.begin("model", "shop", "0002", LADDER, decision=whole[:8])
    assert state.decision == whole


def test_states_are_read_back_as_they_were_written(shop: Shop) -> None:
    begin(shop)
    shop.day(0.3, 0.3)
    shop.runner.step()
    state = shop.files.get("shop")
    shop.files.write(state)
    assert shop.files.get("shop") == state
    (path,) = (shop.home / "trials").glob("*.json")
    path.write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot be read as a trial"):
        shop.files.all()


def first_artifact(shop: Shop) -> None:
    """Put the first version of an artefact on trial: nothing of its name serves."""
    said = document("style", None, harness={"append": "Be quick."})
    shop.artifacts.register(said, actor="jo")
    shop.runner.begin("artifact", "style", "0001", LADDER)
    shop.runner.step()
    assert shop.artifacts.trials("style")["canary"].version == "0001"
    assert shop.artifacts.live("style") is None


def test_a_first_artefact_is_tried_against_none_and_withdrawn_after_a_drop(shop: Shop) -> None:
    first_artifact(shop)
    with pytest.raises(ConfigurationError, match="one change is tried at a time"):
        shop.runner.begin("model", "shop", "0002", LADDER)
    while (state := shop.files.get("style")).rung == "canary" and state.outcome is None:
        shop.shown("style@0001", 0.1, 0.4)
        shop.runner.step()
    assert (state.rung, state.outcome) == ("live", None)
    live = shop.artifacts.live("style")
    assert live is not None
    for _ in range(2):
        shop.shown("style@0001", 0.9, 0.9)
        shop.runner.step()
    state = shop.files.get("style")
    assert (state.outcome, state.closed) == ("drop", True)
    assert shop.artifacts.live("style") is None
    assert shop.artifacts.get("style", "0001").status == "retired"


def test_an_artefact_that_no_route_gives_to_agents_is_not_tried(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop.runner, "_routes", lambda _kind, _name: [])
    shop.artifacts.register(document("style", None, harness={"append": "Be quick."}), actor="jo")
    with pytest.raises(ConfigurationError, match="no route gives 'style' to agents"):
        shop.runner.begin("artifact", "style", "0001", LADDER)
    assert shop.files.all() == []


def test_an_artefact_that_does_harm_is_taken_back(shop: Shop) -> None:
    first_artifact(shop)
    for _ in range(3):
        shop.shown("style@0001", 0.8, 0.4)
        shop.runner.step()
    assert shop.files.get("style").outcome == "harm"
    assert shop.artifacts.trials("style") == {}
    assert shop.artifacts.live("style") is None


def test_a_trial_tells_what_joined_neither_arm(shop: Shop) -> None:
    first_artifact(shop)
    shop.unnamed(7)
    for _ in range(6):
        shop.shown("style@0001", 0.4, 0.4, sessions=3)
        shop.runner.step()
        state = shop.files.get("style")
        assert state.undrawn.sessions == 7
    assert state.undrawn.steps > 7, "sessions have several steps"
    assert state.outcome == "max_days"
    assert state.reasons[-1] == state.undrawn.told
    assert state.reasons[-1].startswith("7 sessions (")
    assert "x-headrace-session" in state.reasons[-1]


def test_a_trial_whose_sessions_are_all_drawn_tells_of_none(shop: Shop) -> None:
    first_artifact(shop)
    for _ in range(6):
        shop.shown("style@0001", 0.4, 0.4, sessions=3)
        shop.runner.step()
    state = shop.files.get("style")
    assert (state.outcome, state.undrawn.sessions) == ("max_days", 0)
    assert not any("neither arm" in reason for reason in state.reasons)


def test_the_gateway_tells_trials_as_metrics(shop: Shop) -> None:
    begin(shop)
    shop.day(0.3, 0.3)
    shop.day(0.3, 0.3, sessions=100)
    for _ in range(2):
        shop.runner.step()
    known = shop.files.get("shop").comparisons["success"]
    (shop.home / "trials" / "torn.json").write_text("{")
    counters = Counters()
    counters.trials = trial_figures(shop.home / "trials")
    assert counters.trials["log_e"]["model.shop.0002", "success", "no_worse"] == pytest.approx(
        known.log_harm
    )
    lines = prometheus(counters, {}, disk={}, levels={}).decode().splitlines()
    assert (
        'headrace_trial_state{outcome="under way",rung="canary",trial="model.shop.0002"} 1.0'
        in lines
    )
    told = 'headrace_trial_sessions{arm="candidate",comparison="success",trial="model.shop.0002"}'
    assert f"{told} {float(known.arms.candidate.sessions)}" in lines


def proposed(shop: Shop) -> str:
    """Record a decision that proposes new weights; return its id."""
    decided = decide(policy(), AS_OF, evidence(), FixedLookup())
    row = {
        "decision_id": decided.decision_id, "recorded_at": shop.now, "policy": "t",
        "policy_hash": policy().content_hash, "as_of": AS_OF, "surface": decided.surface,
        "subject": decided.subject, "status": "proposed", "actor": "ann", "reason": None,
        "metric": "success", "at_least": 0.8, "due_at": AS_OF, "measured": None, "met": None,
        "document": canonical_json(decided.document).decode(),
    }  # fmt: skip
    shop.lake.append_rows("decisions", [row])
    return decided.decision_id


@pytest.mark.parametrize(("candidate", "status"), [(0.15, "approved"), (0.8, "rejected")])
def test_the_decision_behind_a_candidate_is_settled_by_its_trial(
    shop: Shop, candidate: float, status: str
) -> None:
    """Approved, it is scored when due, from the day on which the candidate went live."""
    decision = proposed(shop)
    shop.runner.begin("model", "shop", "0002", LADDER, decision=decision)
    shop.runner.step()
    days(shop, 5, candidate, 0.4)
    sql = "SELECT status, reason, due_at FROM decisions_latest"
    (row,) = shop.lake.query(sql).to_pylist()
    assert row["status"] == status
    assert "model.shop.0002" in row["reason"]
    begun = shop.lake.query("SELECT status FROM interventions_latest")["status"].to_pylist()
    assert begun == (["begun"] if status == "approved" else [])
    assert (row["due_at"] > shop.now) == (status == "approved")


DYING = """
import os, signal, sys
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from evolve import trial_files
from tests.evolve.trials import Shop
from train.registry import pointer
left = [0]
def may_die():
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def dying(call):
    def done(*args, **more):
        may_die()
        found = call(*args, **more)
        may_die()
        return found
    return done
@contextmanager
def replacing(*args, whole=pointer.replacing, **more):
    may_die()
    with whole(*args, **more) as file:
        yield file
    may_die()
trial_files.replace_file = dying(trial_files.replace_file)
pointer.append_line = dying(pointer.append_line)
pointer.replacing = replacing
for at in sys.stdin:
    if (forked := os.fork()) == 0:
        left[0] = int(at)
        shop = Shop(Path(sys.argv[1]))
        shop.now = datetime.fromisoformat(sys.argv[2])
        shop.runner.step()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), flush=True)
"""
"""Steps in processes of their own, each killed before or after its n-th write of a trial, a pointer or its history.

They are forked from a process that has imported everything and used nothing: that takes two seconds.
"""


def killed_everywhere(shop: Shop, tmp_path: Path, wanted: TrialState) -> int:
    """Kill a step at each of its writes, from the same beginning, then step once more; return how often."""
    kept = tmp_path.with_name(tmp_path.name + "-kept")
    shutil.copytree(tmp_path, kept)
    dying = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", DYING, str(tmp_path), shop.now.isoformat()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    with dying:
        assert dying.stdin
        assert dying.stdout
        for at in range(1, 60):
            shutil.rmtree(tmp_path)
            shutil.copytree(kept, tmp_path)
            dying.stdin.write(f"{at}\n")
            code = int(dying.stdout.readline())
            after = Shop(tmp_path)
            after.now = shop.now
            after.runner.step()
            found = after.files.get("shop")
            assert (found.rung, found.outcome, found.entered, found.closed) == (
                wanted.rung, wanted.outcome, wanted.entered, wanted.closed,
            )  # fmt: skip
            pointer = read_pointer(tmp_path / "models" / "shop")
            served = (
                {"canary": "0001", "live": "0002"}[found.rung]
                if found.outcome != "drop"
                else "0001"
            )
            trials = {"canary": "0002"} if found.rung == "canary" and found.outcome is None else {}
            assert pointer is not None
            assert (pointer.version, dict(pointer.trials)) == (served, trials)
            if code == 0:
                return at - 1
            assert code == -9
    raise AssertionError("it was never left alone")


def after_step(shop: Shop, tmp_path: Path) -> TrialState:
    """What a step that nobody kills comes to, on a copy."""
    copy = tmp_path.with_name(tmp_path.name + "-copy")
    shutil.copytree(tmp_path, copy)
    other = Shop(copy)
    other.now = shop.now
    other.runner.step()
    return other.files.get("shop")


@pytest.mark.slow
@pytest.mark.parametrize("transition", ["canary", "live", "harm", "drop"])
def test_a_kill_at_any_write_changes_nothing(transition: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shop = Shop(home).fill()
    ladder = Ladder.model_validate({**LADDER.model_dump(), "guards": ()})
    shop.runner.begin("model", "shop", "0002", ladder)
    if transition != "canary":
        shop.runner.step()
        bad = 0.9 if transition == "harm" else 0.05
        for _ in range(2):
            shop.day(bad, 0.5, sessions=200)
            if (
                transition == "drop"
                or (transition == "harm" and not shop.files.get("shop").comparisons)
                or not shop.files.get("shop").comparisons
            ):
                shop.runner.step()
    if transition == "drop":
        assert shop.files.get("shop").rung == "live"
        shop.day(0.95, 0.5, sessions=200)
    wanted = after_step(shop, home)
    expected = {
        "canary": ("canary", None), "live": ("live", None), "harm": ("canary", "harm"),
        "drop": ("live", "drop"),
    }  # fmt: skip
    assert (wanted.rung, wanted.outcome) == expected[transition]
    assert killed_everywhere(shop, home, wanted) >= 6
