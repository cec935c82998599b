"""Policy test cases and explanations: they run the real governor and say where they failed."""

import shutil
from pathlib import Path

import pytest

from governance.policy import PolicyBundle, PolicyError, load_bundle
from governance.records import GovernedBatch
from governance.redact import build_redactor
from governance.redact.subject_keys import MemorySubjectKeys
from governance.redact.trajectory import CallRedactor
from governance.trial import explain_exchange, explain_step, run_policy_tests
from governance.trial.cases import CaseCall, load_given
from headrace.app.action_trial import ActionTrial
from tests.governance.factories import MailRedactor, assembly, call, governor, placed, user
from trajectory.exchange import ExchangeOutcome


def mail_redactor(_bundle: PolicyBundle, _key: bytes) -> CallRedactor:
    return MailRedactor()


def real_redactor(bundle: PolicyBundle, key: bytes) -> CallRedactor:
    return build_redactor(
        bundle.redaction.spec, pseudonym_key=key, base=bundle.path, subjects=MemorySubjectKeys()
    )


@pytest.mark.parametrize("name", ["default", "strict", "gdpr", "hipaa-safe-harbor", "agents-safe"])
def test_shipped_bundles_pass_their_own_tests(name: str) -> None:
    bundle = load_bundle(Path(name))
    results = run_policy_tests(bundle, real_redactor, calls=ActionTrial(bundle))
    assert len(results) >= 8
    assert [(r.name, r.problems) for r in results if not r.passed] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in load_bundle().path.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    return tmp_path


def case(folder: Path, text: str) -> None:
    (folder / "own.test.yaml").write_text(
        f"apiVersion: headrace/v1\nkind: PolicyTest\ncases:\n{text}\n"
    )


def test_a_failed_expectation_says_what_was_decided_but_not_what_was_written(folder: Path) -> None:
    case(
        folder,
        "  - name: wrong\n    given: {purposes: [debug], answer: blueprint}\n"
        "    expect: {disposition: left_out, purposes: [eval], absent: [blueprint], reasons: [x]}",
    )
    (result,) = run_policy_tests(load_bundle(folder), mail_redactor)
    assert not result.passed
    assert (result.file, result.line) == (f"{folder.name}/own.test.yaml", 4)
    assert result.problems == (
        "disposition: expected left_out, got stored",
        "purposes: expected eval, got debug",
        "reasons: expected x, got consent:key, retention:default",
        "absent: text 1 is stored",
    )


def test_a_wrong_case_names_file_line_and_field(folder: Path) -> None:
    case(folder, "  - name: a\n    given: {tenent: x}\n    expect: {}")
    with pytest.raises(PolicyError, match=r"own.test.yaml:5: cases.0.given.tenent: unknown field"):
        run_policy_tests(load_bundle(folder), mail_redactor)


def test_a_bundle_without_cases_has_no_results(folder: Path) -> None:
    assert run_policy_tests(load_bundle(folder), mail_redactor) == []


def test_an_exchange_is_explained_rule_by_rule() -> None:
    given = CaseCall.model_validate(
        {"purposes": ["debug", "train_sft"], "headers": {"sec-gpc": "1"}, "answer": "jo@corp.io"}
    )
    told = explain_exchange(load_bundle(), MailRedactor(), given)
    said = {(v.stage, v.rule): v.says for v in told.verdicts}
    assert told.decision == "stored"
    assert said["consent", "client key"] == "grants debug, train_sft"
    assert said["consent", "purposes"] == "debug"
    assert "Global Privacy Control" in said["consent", "consent:global-privacy-control"]
    assert said["redaction", "EMAIL_ADDRESS"] == "found 1: pseudonym"
    assert said["quality", "answer-not-cut"] == "met"
    assert not any("jo@" in v.says for v in told.verdicts)


def test_rules_that_do_not_fit_are_told_too(folder: Path) -> None:
    retention = folder / "retention.yaml"
    rules = "[{name: eu, match: {region: eu}, class: short}, {name: all, match: {tenant: '*'}, class: short}]"
    held = "[{name: case, match: {tenant: other}, reference: C}]"
    said = retention.read_text().replace("rules: []", f"rules: {rules}")
    retention.write_text(said.replace("legal_holds: []", f"legal_holds: {held}"))
    given = CaseCall.model_validate({"purposes": ["debug"]})
    told = explain_exchange(load_bundle(folder), MailRedactor(), given)
    says = {v.rule: v.says for v in told.verdicts if v.stage == "retention"}
    assert says.pop("short").startswith("until ")
    assert says == {
        "eu": "does not decide", "all": "decides: class short", "case": "does not hold",
    }  # fmt: skip


def test_an_example_that_is_wrong_is_told_by_line_and_field(tmp_path: Path) -> None:
    file = tmp_path / "call.yaml"
    file.write_text("given:\n  purposes: [debug]\n  mesages: []\n")
    with pytest.raises(PolicyError, match=r"call.yaml:3: given.mesages: unknown field. Valid: ans"):
        load_given(file)
    file.write_text("purposes: [debgu]\n")
    with pytest.raises(PolicyError, match=r"call.yaml:1: purposes.0: unknown value. Valid: 'debug"):
        load_given(file)
    file.write_text("purposes: [debug]\n")
    assert load_given(file).purposes == ("debug",)


def rows(batch: GovernedBatch) -> dict[str, object]:
    return {
        "ledger": batch.exchanges[0],
        "governance": batch.governance,
        "quarantine": batch.quarantine,
    }


def test_a_row_is_explained_from_what_was_recorded() -> None:
    batch = governor().judge(assembly(placed(call(1, [user("jo@corp.io")]))))
    told = explain_step(load_bundle(), **rows(batch))  # type: ignore[arg-type]
    assert told.decision == "stored"
    assert told.current
    says = [v.says for v in told.verdicts]
    assert "the client key grants purposes" in says
    assert "redacted: EMAIL_ADDRESS×1" in says
    assert not explain_step(load_bundle(Path("strict")), **rows(batch)).current  # type: ignore[arg-type]


def test_a_held_row_is_explained() -> None:
    cut = placed(call(1, finish_reason=None, outcome=ExchangeOutcome.UPSTREAM_ABORT))
    told = explain_step(load_bundle(), **rows(governor().judge(assembly(cut))))  # type: ignore[arg-type]
    assert told.decision == "quarantined"
    assert any("answer-not-cut is not met; held" in v.says for v in told.verdicts)


def test_the_example_of_the_readme_is_right(folder: Path) -> None:
    text = (load_bundle().path.parent / "README.md").read_text(encoding="utf-8")
    rules, example = (block.split("```")[0] for block in text.split("```yaml\n")[-2:])
    consent = (folder / "consent.yaml").read_text()
    (folder / "consent.yaml").write_text(
        consent.replace("  grants: []\n  limits: []\n", rules).replace("  # ", "# ")
    )
    (folder / "acme.test.yaml").write_text(example.replace("absent: [415-555-0132]", ""))
    (result,) = run_policy_tests(load_bundle(folder), mail_redactor)
    assert result.problems == ()


def test_a_case_expects_what_becomes_of_tool_calls(folder: Path) -> None:
    shutil.copy(load_bundle(Path("agents-safe")).path / "actions.yaml", folder)
    case(
        folder,
        "  - name: wrong\n    given: {route: tools, tool_calls: [{name: pay, arguments: {amount: 1}}]}\n"
        "    expect: {actions: {pay: allow, delete_file: deny}}",
    )
    bundle = load_bundle(folder)
    (result,) = run_policy_tests(bundle, mail_redactor, calls=ActionTrial(bundle))
    assert result.problems == (
        "actions.pay: expected allow, got hold",
        "actions.delete_file: expected deny, got no such call",
    )
    (result,) = run_policy_tests(bundle, mail_redactor)
    assert result.problems == ("actions: not tried here; `headrace policy test` does",)
