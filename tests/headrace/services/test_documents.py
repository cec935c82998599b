"""Documents of every kind: one shape, one schema, and errors that name file, line and field."""

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml

from governance.policy import PolicyError, load_bundle
from governance.policy.bundle import SHIPPED
from headrace.cli import run
from headrace.services.documents import check_beside, check_file, json_schema, models

SUBSTRATE = """apiVersion: headrace/v1
kind: Substrate
metadata: {name: shop}
spec:
  purposes: [train_sft]
  reward: {signals: {success: 1.0}}
"""
SCHEDULE = """apiVersion: headrace/v1
kind: Schedule
metadata: {name: nightly}
spec: {cron: "0 2 * * *", substrate: shop.yaml, model: shop, recipes: [sft]}
"""
EVOLUTION = """apiVersion: headrace/v1
kind: Evolution
metadata: {name: night}
spec: {signals: [success]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in (SHIPPED / "default").glob("*.yaml"):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_one_schema_takes_every_kind_and_refuses_what_the_models_refuse() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    for text in (SUBSTRATE, SCHEDULE, EVOLUTION):
        document = yaml.safe_load(text)
        assert validator.is_valid(document)
        assert not validator.is_valid({**document, "spec": {**document["spec"], "nope": 1}})
    assert validator.is_valid(yaml.safe_load((SHIPPED / "evolution.yaml").read_text()))
    later = [
        "Substrate",
        "Schedule",
        "Recipe",
        "Evolution",
        "Prices",
        "Artifact",
        "Safety",
        "Action",
        "ReviewQueue",
    ]
    assert [*models()][-len(later) :] == later


def test_documents_of_later_rooms_stand_beside_a_bundle_and_decide_nothing(folder: Path) -> None:
    before = load_bundle(folder).content_hash
    (folder / "night.yaml").write_text(SUBSTRATE + "---\n" + SCHEDULE + "---\n" + EVOLUTION)
    assert load_bundle(folder).content_hash == before
    assert check_beside(folder) == ["Substrate", "Schedule", "Evolution"]
    assert check_file(folder / "night.yaml") == ["Substrate", "Schedule", "Evolution"]
    (folder / "night.yaml").write_text(SUBSTRATE.replace("train_sft", "train_it"))
    with pytest.raises(PolicyError, match=r"night.yaml:5: spec\.purposes\.0: unknown value"):
        check_beside(folder)
    (folder / "night.yaml").write_text(SCHEDULE.replace("[sft]", "[nosuch]"))
    with pytest.raises(PolicyError, match=r"night.yaml:4: .*nosuch"):
        check_beside(folder)


def test_a_kind_that_nobody_reads_is_an_error_that_says_so(folder: Path) -> None:
    (folder / "evolution.yaml").write_text(EVOLUTION.replace("kind: Evolution", "kind: Magic"))
    expected = "evolution.yaml:2: kind: unknown kind 'Magic'"
    with pytest.raises(PolicyError, match=expected):
        load_bundle(folder)
    with pytest.raises(PolicyError, match=expected):
        check_file(folder / "evolution.yaml")


def test_the_command_checks_folders_and_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "shop.yaml").write_text(SUBSTRATE)
    redaction = folder / "redaction.yaml"
    redaction.write_text(redaction.read_text().replace("model: embedded", "model: null"))
    assert run(["policy", "check", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["beside"] == "Substrate"
    assert run(["policy", "check", str(folder / "shop.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kinds"] == "Substrate"
    (folder / "shop.yaml").write_text(SUBSTRATE.replace("purposes", "purpose"))
    assert run(["policy", "check", str(folder)]) == 2
    assert "shop.yaml:5: spec.purpose: unknown field" in capsys.readouterr().err


WEBHOOKS = """\
gateway:
  webhooks:
    - name: tickets
      sender: zendesk
      secret: {env: TICKETS_SECRET}
      client_key: 0123456789ab
      rules:
        - when: contains(['SOLVED'], event.previous) && type == 'status'
          id: detail.external_id
          name: resolved
          value: "`0`"
        - when: detail.tags[?name == 'x'] | [0]
          each: detail.tags
          id: ticket_of_the_tag
          name: success
          value: "`1`"
"""


def test_settings_are_checked_with_what_webhooks_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text(WEBHOOKS)
    with pytest.raises(PolicyError, match=r"yaml:5: .*secret: .*TICKETS_SECRET"):
        check_file(file)
    monkeypatch.setenv("TICKETS_SECRET", "s" * 32)
    assert check_file(file) == ["settings"]
    assert run(["policy", "check", str(file)]) == 0
    wrong = WEBHOOKS.replace("detail.external_id", "ticket.external_id")
    wrong = wrong.replace("event.previous", "events.previous").replace(": success", ": sucess")
    file.write_text(wrong)
    with pytest.raises(PolicyError) as raised:
        check_file(file)
    first, second, third = str(raised.value).splitlines()
    at = f"{file}:8: gateway.webhooks.0.rules.0.when: "
    assert first.startswith(f"{at}no event of zendesk has the field 'events'. Valid: account_id, ")
    assert "yaml:9: gateway.webhooks.0.rules.0.id: " in second
    assert third.endswith("'sucess' is known to nothing here; did you mean 'success'?")
    assert run(["policy", "check", str(file)]) == 2
    file.write_text(WEBHOOKS.replace("contains(", "contains(("))
    with pytest.raises(PolicyError, match=r"yaml:8: .*when: .*not a JMESPath expression"):
        check_file(file)


def test_the_webhooks_that_are_shown_as_examples_are_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GITHUB_WEBHOOK", "GITLAB_WEBHOOK", "ZENDESK_WEBHOOK", "SLACK_SIGNING"):
        monkeypatch.setenv(f"{name}_SECRET", "s" * 32)
    example = Path(__file__).parents[3] / "examples" / "webhooks" / "headrace.yaml"
    assert check_file(example) == ["settings"]
