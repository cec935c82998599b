"""A night runs its commands in order, tries again what failed, and ends at its deadline."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.schedule.runner import (
    CommandOutcome,
    DeadlinePassedError,
    Night,
    headrace_commands,
    run_night,
)
from train.schedule import Schedule

BUILT = CommandOutcome(0, {"name": "shop", "version": "v7", "item_ids": ["a", "b", "c"]})


def schedule(**spec: Any) -> Schedule:
    base = {"cron": "0 2 * * *", "substrate": "s.yaml", "model": "shop", "recipes": ["sft"]}
    return Schedule.model_validate(
        {
            "apiVersion": "headrace/v1",
            "kind": "Schedule",
            "metadata": {"name": "nightly"},
            "spec": {**base, "retries": {"attempts": 2, "wait_minutes": 1}, **spec},
        }
    )


class ScriptedCommands:
    """Answers commands by their first two words, one answer after another; keeps what was asked."""

    def __init__(self, **answers: Sequence[CommandOutcome]) -> None:
        self._answers = {name: list(found) for name, found in answers.items()}
        self.asked: list[str] = []
        self.now = 0.0

    def __call__(self, arguments: Sequence[str], seconds: float) -> CommandOutcome:
        self.asked.append(" ".join(arguments))
        self.now += 60
        if seconds < 60:
            raise DeadlinePassedError
        found = self._answers[arguments[1]]
        return found.pop(0) if len(found) > 1 else found[0]

    def run(self, used: Schedule, known: frozenset[str] = frozenset()) -> Night:
        return run_night(used, self, known_items=known, clock=lambda: self.now, pause=self.wait)

    def wait(self, seconds: float) -> None:
        self.now += seconds


def planned(
    *recipes: str, obstacles: Sequence[str] = (), made: str | None = None, awaits: bool = False
) -> CommandOutcome:
    said = {"obstacles": list(obstacles), "made": made, "base": "shop@0001"}
    lines = [{"recipe": name, **said, "awaits_promotion": awaits} for name in recipes]
    return CommandOutcome(0, {"recipes": lines})


def trained(version: str, base: str = "shop@0001") -> CommandOutcome:
    return CommandOutcome(0, {"model": f"shop@{version}", "version": version, "base": base})


def test_a_good_night_builds_plans_and_trains() -> None:
    script = ScriptedCommands(build=[BUILT], plan=[planned("sft")], run=[trained("0002")])
    night = script.run(schedule())
    assert night == Night("trained", (), "shop@v7", ("a", "b", "c"), ("shop@0002",), ())
    assert script.asked == [
        "substrate build s.yaml",
        "train plan --substrate shop@v7 --model shop",
        "train run sft --substrate shop@v7 --model shop --resume last",
    ]


def test_with_promote_the_night_climbs_the_ladder() -> None:
    script = ScriptedCommands(
        build=[BUILT],
        plan=[planned("sft", "awr")],
        run=[trained("0002"), CommandOutcome(1)],
        promote=[CommandOutcome(0)],
    )
    night = script.run(schedule(recipes=["sft", "awr"], promote=True))
    assert (night.outcome, night.models, night.promoted) == (
        "trained",
        ("shop@0002",),
        ("shop@0002",),
    )
    assert night.reasons == ("awr: the gate refused the candidate",)


@pytest.mark.parametrize(("base", "serving"), [("shop@0001", "0001"), ("my-base", "")])
def test_a_night_promotes_only_over_what_its_candidate_was_judged_beside(
    base: str, serving: str
) -> None:
    """Somebody may take that back, or promote a better one, while a model trains for hours."""
    changed = CommandOutcome(3, error="shop@0004 serves since a moment ago")
    script = ScriptedCommands(
        build=[BUILT], plan=[planned("sft")], run=[trained("0006", base)], promote=[changed]
    )
    night = script.run(schedule(promote=True))
    assert script.asked[-1] == f"train promote shop 0006 --serving {serving}"
    assert (night.outcome, night.promoted) == ("failed", ())
    assert night.reasons == ("promote: shop@0004 serves since a moment ago",)


def test_without_promote_the_first_candidate_ends_the_night() -> None:
    script = ScriptedCommands(build=[BUILT], plan=[planned("sft", "awr")], run=[trained("0002")])
    script.run(schedule(recipes=["sft", "awr"]))
    assert sum(asked.startswith("train run") for asked in script.asked) == 1


def test_what_failed_is_tried_again_what_was_refused_is_not() -> None:
    script = ScriptedCommands(
        build=[CommandOutcome(3, error="disk"), BUILT],
        plan=[planned("sft")],
        run=[CommandOutcome(-9, error="killed"), trained("0002")],
    )
    assert script.run(schedule()).outcome == "trained"
    refused = ScriptedCommands(build=[CommandOutcome(2, error="s.yaml:3: wrong")])
    night = refused.run(schedule())
    assert (night.outcome, night.reasons) == ("failed", ("substrate build: s.yaml:3: wrong",))
    assert len(refused.asked) == 1


def test_too_little_new_is_nothing_to_do() -> None:
    script = ScriptedCommands(build=[BUILT])
    night = script.run(schedule(conditions={"minimum_new_items": 2}), frozenset("ab"))
    assert (night.outcome, night.reasons) == ("nothing", ("1 new items, fewer than 2",))


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (planned("sft", obstacles=["0 usable"]), "sft: 0 usable"),
        (planned("sft", made="shop@0002"), "sft: made shop@0002 of this version already"),
    ],
)
def test_what_cannot_learn_is_not_run_and_says_why(plan: CommandOutcome, reason: str) -> None:
    night = ScriptedCommands(build=[BUILT], plan=[plan]).run(schedule())
    assert (night.outcome, night.reasons) == ("nothing", (reason,))


def test_a_candidate_that_waits_is_promoted_by_a_schedule_of_its_model_that_promotes() -> None:
    waiting = planned("sft", made="shop@0002", awaits=True)
    script = ScriptedCommands(build=[BUILT], plan=[waiting], promote=[CommandOutcome(0)])
    night = script.run(schedule(promote=True))
    assert (night.outcome, night.promoted) == ("trained", ("shop@0002",))
    assert script.asked[-1] == "train promote shop 0002 --serving 0001"
    script = ScriptedCommands(build=[BUILT], plan=[waiting])
    assert script.run(schedule(promote=False)).outcome == "nothing"


def test_a_night_plans_for_its_own_model() -> None:
    script = ScriptedCommands(build=[BUILT], plan=[planned("sft")], run=[trained("0002")])
    script.run(schedule(model="other"))
    assert script.asked[1].startswith("train plan --substrate shop@v7 --model other")


def test_with_the_ladder_a_candidate_goes_on_trial_and_ends_the_night() -> None:
    weights = {"decision_id": "3f2a", "decided": {"surface": "weights", "reason": "weak"}}
    script = ScriptedCommands(
        build=[BUILT], plan=[planned("sft", "awr")],
        run=[CommandOutcome(0, weights), trained("0002")], begin=[CommandOutcome(0)],
    )  # fmt: skip
    night = script.run(
        schedule(recipes=["sft", "awr"], promote="ladder", evolution="evolution.yaml")
    )
    assert (night.outcome, night.models, night.promoted) == ("trained", ("shop@0002",), ())
    assert night.reasons == ("shop@0002 is on trial",)
    assert script.asked[-1] == "trial begin shop 0002 --policy evolution.yaml --decision 3f2a"


def test_a_candidate_waits_while_another_change_is_on_trial() -> None:
    busy = CommandOutcome(2, error="shop@0001 is on trial on model")
    script = ScriptedCommands(
        build=[BUILT], plan=[planned("sft")], run=[trained("0002")], begin=[busy]
    )
    night = script.run(schedule(promote="ladder"))
    assert night.outcome == "trained"
    assert night.reasons == ("trial begin: shop@0001 is on trial on model",)
    waiting = planned("sft", made="shop@0002", awaits=True)
    later = ScriptedCommands(
        build=[BUILT], plan=[waiting], show=[CommandOutcome(2)], begin=[CommandOutcome(0)]
    )
    assert later.run(schedule(promote="ladder")).reasons == ("shop@0002 is on trial",)


def test_a_candidate_that_was_tried_is_not_tried_again() -> None:
    waiting = planned("sft", made="shop@0002", awaits=True)
    script = ScriptedCommands(build=[BUILT], plan=[waiting], show=[CommandOutcome(0)])
    night = script.run(schedule(promote="ladder"))
    assert night.reasons == ("sft: made shop@0002 of this version already",)


def test_the_deadline_ends_the_night_wherever_it_is() -> None:
    script = ScriptedCommands(build=[BUILT], plan=[planned("sft")], run=[trained("0002")])
    night = script.run(schedule(deadline_minutes=2.5))
    assert night.outcome == "deadline"
    assert script.asked[-1].startswith("train run")


def test_commands_are_real_processes_with_json_and_last_words(tmp_path: Path) -> None:
    run = headrace_commands(tmp_path / "home", tmp_path / "log")
    done = run(["substrate", "list"], 60, ())
    assert done.code == 0
    failed = run(["substrate", "build", str(tmp_path / "absent.yaml")], 60, ())
    assert failed.code == 2
    assert "absent.yaml" in failed.error


def test_a_command_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    run = headrace_commands(tmp_path / "home", tmp_path / "log")
    begun = time.monotonic()
    with pytest.raises(DeadlinePassedError):
        run(["substrate", "list"], 0.01, ())
    assert time.monotonic() - begun < 20


def decided(surface: str, decision: str = "d1") -> CommandOutcome:
    said = {"surface": surface, "reason": "the rule"}
    policy = {"name": "night"}
    return CommandOutcome(
        0,
        {
            "decision_id": decision,
            "decided": said,
            "policy": policy,
            "as_of": "2026-05-09T00:00:00+00:00",
        },
    )


def drawn(label: str, objections: str = "") -> dict[str, Any]:
    return {"artifact": label, "objections": objections}


def listed(decision: str, status: str = "candidate") -> CommandOutcome:
    row = {"artifact": "facts", "version": "0001", "decision": decision, "status": status}
    return CommandOutcome(0, rows=[row])


def proposal(decision: str, **changes: Any) -> dict[str, Any]:
    row = {"decision_id": decision, "policy": "night", "surface": "memory", "status": "proposed"}
    return {**row, "due_at": "2026-05-12T00:00:00+00:00", **changes}


NONE = CommandOutcome(0)
BEGIN = "trial begin facts 0001 --policy night.yaml --decision d1"


def asking(**more: Any) -> Schedule:
    return schedule(evolution="night.yaml", **{"promote": "ladder", **more})


@pytest.mark.parametrize("surface", ["memory", "skill", "harness", "tool_schema"])
def test_a_decision_for_an_artefact_is_answered_on_the_ladder(surface: str) -> None:
    propose = CommandOutcome(0, rows=[drawn("facts@0001")])
    script = ScriptedCommands(run=[decided(surface)], list=[NONE], propose=[propose], begin=[NONE])
    night = script.run(asking())
    assert (night.outcome, night.artifacts) == ("proposed", ("facts@0001",))
    assert night.reasons == (f"decision d1: {surface} (the rule)", "facts@0001 is on trial")
    assert script.asked == [
        "evolve run night.yaml", "artifact list", "artifact propose d1 --add", BEGIN,
    ]  # fmt: skip


@pytest.mark.parametrize("promote", [False, True])
def test_without_the_ladder_what_a_decision_asks_for_waits_for_a_person(promote: bool) -> None:
    propose = CommandOutcome(0, rows=[drawn("facts@0001")])
    script = ScriptedCommands(run=[decided("memory")], list=[NONE], propose=[propose])
    night = script.run(asking(promote=promote))
    assert (night.outcome, night.artifacts) == ("proposed", ("facts@0001",))
    assert night.reasons[1:] == ("facts@0001 is registered",)
    assert script.asked[-1] == "artifact propose d1 --add"
    later = ScriptedCommands(run=[decided("memory")], list=[listed("d1")])
    assert later.run(asking(promote=promote)).outcome == "nothing"


@pytest.mark.parametrize(
    ("propose", "outcome", "reason"),
    [
        (NONE, "nothing", "nothing to propose from what was seen"),
        (CommandOutcome(0, rows=[drawn("facts", "secret")]), "refused",
         "facts: its inspection objects (secret)"),
        (CommandOutcome(2, error="give --tenant"), "nothing", "artifact propose: give --tenant"),
        (CommandOutcome(3, error="disk"), "failed", "artifact propose: disk"),
    ],
)  # fmt: skip
def test_what_cannot_be_proposed_says_why(
    propose: CommandOutcome, outcome: str, reason: str
) -> None:
    script = ScriptedCommands(run=[decided("memory")], list=[NONE], propose=[propose])
    night = script.run(asking())
    assert (night.outcome, night.reasons[1:], night.artifacts) == (outcome, (reason,), ())


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        (CommandOutcome(2, error="no route"), "trial begin: no route"),
        (CommandOutcome(0, {"outcome": "refused", "reasons": ["no gain"]}),
         "facts@0001: refused (no gain)"),
    ],
)  # fmt: skip
def test_what_cannot_be_tried_says_why(begin: CommandOutcome, reason: str) -> None:
    propose = CommandOutcome(0, rows=[drawn("facts@0001")])
    script = ScriptedCommands(
        run=[decided("memory")], list=[NONE], propose=[propose], begin=[begin]
    )
    night = script.run(asking())
    assert (night.outcome, night.reasons[-1]) == ("proposed", reason)


@pytest.mark.parametrize("tonight", [decided("memory"), decided("nothing", "d2")])
def test_what_a_night_registered_and_did_not_try_goes_on_trial_later(
    tonight: CommandOutcome,
) -> None:
    history = CommandOutcome(0, rows=[proposal("d1"), proposal("d2", surface="nothing")])
    script = ScriptedCommands(
        run=[tonight],
        history=[history],
        list=[listed("d1")],
        show=[CommandOutcome(2)],
        begin=[NONE],
    )
    night = script.run(asking())
    assert (night.outcome, night.artifacts) == ("proposed", ("facts@0001",))
    assert (script.asked[-1], "artifact propose d1 --add" in script.asked) == (BEGIN, False)
    tried = ScriptedCommands(run=[tonight], history=[history], list=[listed("d1")], show=[NONE])
    assert tried.run(asking()).outcome == "nothing"
    taken = ScriptedCommands(run=[tonight], history=[history], list=[listed("d1", "retired")])
    assert taken.run(asking()).outcome == "nothing"


def test_other_tenants_artefacts_follow_when_the_first_went_live() -> None:
    history = CommandOutcome(0, rows=[proposal("d1", status="approved")])
    rows = [
        {"artifact": "acme-schema", "version": "0001", "decision": "d1", "status": "live"},
        {"artifact": "facts", "version": "0001", "decision": "d1", "status": "candidate"},
    ]
    script = ScriptedCommands(
        run=[decided("nothing", "d2")],
        history=[history],
        list=[CommandOutcome(0, rows=rows)],
        show=[CommandOutcome(2)],
        begin=[NONE],
    )
    night = script.run(asking())
    assert (night.outcome, night.artifacts) == ("proposed", ("facts@0001",))
    assert script.asked[-1] == BEGIN


def test_what_a_person_approved_and_carries_out_is_not_drawn_too() -> None:
    history = CommandOutcome(0, rows=[proposal("d1", status="approved")])
    script = ScriptedCommands(run=[decided("nothing", "d2")], history=[history], list=[NONE])
    assert script.run(asking()).outcome == "nothing"
    assert script.asked[-1] == "artifact list"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [proposal("d1", status="rejected")],
        [proposal("d1", due_at="2026-05-09T00:00:00+00:00")],
        [proposal("d1", policy="another")],
        [proposal("d1"), proposal("d2", surface="weights")],
    ],
    ids=["none", "settled", "overdue", "another policy's", "a later one for the weights"],
)
def test_a_night_goes_on_only_with_the_newest_open_proposal(rows: list[dict[str, Any]]) -> None:
    history = CommandOutcome(0, rows=rows)
    script = ScriptedCommands(run=[decided("nothing", "d3")], history=[history])
    night = script.run(asking())
    assert (night.outcome, night.reasons) == ("nothing", ("decision d3: nothing (the rule)",))


def test_a_night_decides_by_the_day_that_it_is_told() -> None:
    script = ScriptedCommands(run=[decided("rollback")])
    run_night(asking(), script, as_of="2026-05-10", clock=lambda: script.now, pause=script.wait)
    assert script.asked == ["evolve run night.yaml --as-of 2026-05-10"]


def test_a_rollback_is_for_a_person() -> None:
    script = ScriptedCommands(run=[decided("rollback")])
    night = script.run(asking())
    assert (night.outcome, night.reasons) == ("nothing", ("decision d1: rollback (the rule)",))
    assert script.asked == ["evolve run night.yaml"]


def test_a_decision_for_the_weights_goes_on_to_training() -> None:
    script = ScriptedCommands(
        build=[BUILT], plan=[planned("sft")], run=[decided("weights"), trained("0002")]
    )
    night = script.run(schedule(evolution="night.yaml"))
    assert (night.outcome, night.models) == ("trained", ("shop@0002",))


def test_a_control_plane_that_fails_fails_the_night() -> None:
    script = ScriptedCommands(run=[CommandOutcome(2, {}, "no such file")])
    night = script.run(schedule(evolution="night.yaml"))
    assert (night.outcome, night.reasons) == ("failed", ("evolve run: no such file",))
