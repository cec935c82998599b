"""Policy documents: what is refused and how, what the hash covers, and the published schema."""

import dataclasses
import json
import os
import re
import shutil
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from governance.policy import KINDS, PolicyError, load_bundle
from governance.policy.bundle import SHIPPED
from governance.policy.consent import TRAINING, Purpose
from governance.policy.diff import diff_bundles
from governance.policy.quality import TEXT_COLUMNS, Column, ItemColumn
from governance.policy.redaction import DEFAULT_ENTITIES
from governance.policy.selector import Facts, Match
from governance.quality import StepFacts
from headrace.services.documents import json_schema
from train.substrate.quality import ItemFacts

BUNDLES = ("default", "strict", "gdpr", "hipaa-safe-harbor")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in (SHIPPED / "default").glob("*.yaml"):
        shutil.copy(file, tmp_path)
    return tmp_path


def change(folder: Path, kind: str, old: str, new: str) -> None:
    file = folder / f"{kind}.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def problem(folder: Path) -> str:
    with pytest.raises(PolicyError) as caught:
        load_bundle(folder)
    return str(caught.value)


@cache
def schema() -> jsonschema.Draft202012Validator:
    """Return a validator of the published schema, which is itself one."""
    published = json_schema()
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


def test_inline_takes_what_can_be_replaced(folder: Path) -> None:
    change(folder, "redaction", "  scope: tenant\n", "  inline: {routes: [openai]}\n")
    spec = load_bundle(folder).redaction.spec
    assert spec.inline is not None
    sought = spec.inline.sought(spec.operators())
    assert {"EMAIL_ADDRESS", "API_KEY"} < sought
    assert "OPAQUE_DATA" not in sought


def test_tools_get_values_back_of_all_types_or_of_some(folder: Path) -> None:
    to = "[client, 'tool:send', {tool: mail, entities: [EMAIL_ADDRESS]}, {tool: '*', entities: [AGE]}]"
    inline = f"  inline: {{routes: [openai], restore: {{to: {to}}}}}\n"
    change(folder, "redaction", "  scope: tenant\n", inline)
    schema().validate(yaml.safe_load((folder / "redaction.yaml").read_text()))
    spec = load_bundle(folder).redaction.spec.inline
    assert spec is not None
    assert spec.restore.receivers() == {
        "tool:send": None,
        "tool:mail": frozenset({"EMAIL_ADDRESS"}),
        "tool:*": frozenset({"AGE"}),
    }


@pytest.mark.parametrize(
    ("inline", "said"),
    [
        ("{}", "routes"),
        ("{routes: []}", "routes"),
        ("{routes: [a], entities: [EMAIL_ADRESS]}", "EMAIL_ADDRESS"),
        ("{routes: [a], entities: [OPAQUE_DATA]}", "inline.entities: unknown"),
        ("{routes: [a], surrogates: invented}", "realistic"),
        ("{routes: [a], restore: {to: ['tool:send']}}", "add `client`"),
        ("{routes: [a], restore: {to: [client, send]}}", "tool:NAME"),
        ("{routes: [a], restore: {to: [client, 'tool:']}}", "tool:NAME"),
        ("{routes: [a], restore: {to: [client, {tool: a}]}}", "entities: is required"),
        ("{routes: [a], restore: {to: [client, {entities: [PERSON]}]}}", "tool: is required"),
        ("{routes: [a], restore: {to: [client, {tool: a, entities: []}]}}", "entities: is empty"),
        (
            "{routes: [a], restore: {to: [client, {tool: a, types: [PERSON]}]}}",
            "Valid: entities, tool",
        ),
        ("{routes: [a], restore: {to: [client, 'tool:a', 'tool:a']}}", "tool a is named twice"),
        (
            "{routes: [a], restore: {to: ['tool:a', client, {tool: a, entities: [PERSON]}]}}",
            "tool a is named twice",
        ),
        (
            "{routes: [a], restore: {to: [client, {tool: a, entities: [EMAIL_ADRESS]}]}}",
            "Did you mean EMAIL_ADDRESS?",
        ),
        (
            "{routes: [a], entities: [PERSON], restore: {to: [client, {tool: a, entities: [US_SSN]}]}}",
            "inline.restore.to: unknown entity type, or one that is not replaced. Valid: PERSON",
        ),
        (
            "{routes: [a], restore: {to: [client, {tool: a, entities: [OPAQUE_DATA]}]}}",
            "inline.restore.to: unknown entity type, or one that is not replaced",
        ),
        ("{routes: [a], on_failure: ignore}", "refuse"),
    ],
)
def test_inline_says_what_is_wrong(folder: Path, inline: str, said: str) -> None:
    change(folder, "redaction", "  scope: tenant\n", f"  inline: {inline}\n")
    assert said in problem(folder)


def test_inline_needs_the_installation_s_keys(folder: Path) -> None:
    change(folder, "redaction", "  scope: tenant\n", "  keys: subject\n  inline: {routes: [a]}\n")
    assert "keys installation" in problem(folder)


@pytest.mark.parametrize("name", BUNDLES)
def test_shipped_bundles_load_by_name_and_fit_the_schema(name: str) -> None:
    bundle = load_bundle(Path(name))
    assert re.fullmatch(r"b2:[0-9a-f]{40}", bundle.content_hash)
    for file in bundle.path.glob("*.yaml"):
        schema().validate(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize("name", [*BUNDLES, "agents-safe"])
def test_the_privacy_control_takes_all_learning_and_sharing_away(name: str) -> None:
    taken = load_bundle(Path(name)).consent.spec.headers.global_privacy_control
    assert {*taken} == {*TRAINING, Purpose.SHARE}


def test_the_default_bundle_is_the_default() -> None:
    assert load_bundle().content_hash == load_bundle(Path("default")).content_hash


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        ("dedup", "identical_retries", "identical_retry", "dedup.yaml:7: spec.identical_retry: unknown field. Valid: identical_retries, "),
        ("dedup", ": leave_out", ": leave", "dedup.yaml:7: spec.identical_retries: unknown value. Valid: 'leave_out' or 'keep'"),
        ("consent", "grants: []", "grants: [{name: a, match: {tenant: b}, purposes: [debgu]}]", "spec.grants.0.purposes.0: unknown value. Valid: 'debug', 'eval'"),
        ("consent", "grants: []", "grants: [{name: a, match: {tenent: b}, purposes: [debug]}]", "spec.grants.0.match.tenent: unknown field. Valid: agent, app, "),
        ("retention", "default: standard", "default: long", "retention.yaml:6: spec: default: no retention class 'long'. Valid: short, standard"),
        ("quality", "column: leftover_findings", "column: leftovers", "quality.yaml:12: spec.expectations.0.column: unknown value. Valid: 'step_id'"),
        ("quality", "expectation: expect_column_values_to_be_unique", "expectation: expect_uniqueness", "quality.yaml:15: spec.expectations.1: unknown 'expectation'. Valid: 'expect_"),
        ("quality", "      min_value: 0\n", "      min_valu: 0\n", "unknown field. Valid: column, expectation, max_value, min_value, name, where"),
        ("capture", "kind: Capture", "kind: Captur", "capture.yaml:2: kind: unknown kind 'Captur'. Valid: Capture, Redaction"),
        ("capture", "apiVersion: headrace/v1", "apiVersion: v2", "capture.yaml:1: apiVersion: unknown value. Valid: 'headrace/v1'"),
        ("capture", "  rules: []", "  rules: []\n  level: metadata", "capture.yaml:10: spec: level twice"),
        ("capture", "  rules: []", "  rules: [", "document: not YAML"),
        ("capture", "  rules: []", "  rules: []\n  # sk-abcdefghijklmnop1234", "capture.yaml:10: document: looks like a secret"),
        ("capture", "level: content", "level: &a content", ""),
        ("consent", "limits: []", "limits: [{name: a, never: [debug], match: {data_class: helth}}]", "spec.limits.0.match.data_class: unknown data class. Valid: identity, "),
        ("redaction", "  names:", "  recognizers: [ours.yaml]\n  names:", "redaction.yaml:17: spec.recognizers.0: cannot be read; relative to this folder (FileNotFoundError)"),
    ],
)  # fmt: skip
def test_errors_name_file_line_field_and_valid_values(
    folder: Path, kind: str, old: str, new: str, expected: str
) -> None:
    change(folder, kind, old, new)
    if expected:
        assert expected in problem(folder)
    else:
        load_bundle(folder)


@pytest.mark.parametrize("place", ["pipe", "device", "folder"])
def test_recognizers_in_what_is_no_file_are_refused_and_not_waited_for(
    folder: Path, place: str
) -> None:
    file = folder / "ours.yaml"
    match place:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case _:
            file.mkdir()
    change(folder, "redaction", "  names:", "  recognizers: [ours.yaml]\n  names:")
    assert "redaction.yaml:17: spec.recognizers.0: cannot be read" in problem(folder)


EXPECTATION = "expectations: [{name: e, expectation: expect_column_values_to_be_"


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("consent", "limits: [{name: l, match: {provider: openai}, never: [debug]}]", "spec.limits.0.match.provider: fits no upstream: one reads https://api.example.com:443, scheme and port included. Did you mean *openai*?"),
        ("consent", "limits: [{name: l, match: {provider: https://api.openai.com}, never: [debug]}]", "Did you mean *api.openai.com*?"),
        ("consent", "limits: [{name: l, match: {provider: '*.openai.com'}, never: [debug]}]", "fits no upstream"),
        ("consent", "limits: [{name: l, match: {provider: '*openai.com:443/v1*'}, never: [debug]}]", "fits no upstream"),
        ("consent", "limits: [{name: l, match: {region: EU-*}, never: [debug]}]", "spec.limits.0.match.region: fits no region: regions are in small letters. Did you mean eu-*?"),
        ("consent", "limits: [{name: l, match: {agent: claude-cli/1.0}, never: [debug]}]", "spec.limits.0.match.agent: fits nothing: no agent or region has '/'"),
        ("consent", "limits: [{name: l, match: {route: OpenAI}, never: [debug]}]", "spec.limits.0.match.route: fits no route"),
        ("consent", "limits: [{name: l, match: {dialect: openai.chats}, never: [debug]}]", "unknown dialect. Valid: openai.chat, "),
        ("consent", "limits: [{name: l, match: {dialect: openai.chats}, never: [debug]}]", "Did you mean openai.chat?"),
        ("consent", "limits: [{name: l, match: {tenant: 'acme '}, never: [debug]}]", "spec.limits.0.match.tenant: has blanks before or after it"),
        ("consent", "limits: [{name: l, match: {tool: ''}, never: [debug]}]", "spec.limits.0.match.tool: is empty"),
        ("consent", "limits: [{name: l, match: {data_class: Health}, never: [debug]}]", "unknown data class. Valid: identity, contact"),
        ("consent", "limits: [{name: l, match: {data_class: Health}, never: [debug]}]", "Did you mean health?"),
        ("consent", "limits: [{name: l, never: [train]}]", "Did you mean train_sft or train_preference or train_rl?"),
        ("consent", "limits: [{name: l, never: [debug], mach: {}}]", "spec.limits.0.mach: unknown field. Valid: match, name, never. Did you mean match?"),
        ("consent", "limits: [{name: l, never: [debug]}, {name: l, never: [eval]}]", "spec.limits: two are named 'l'"),
        ("consent", "grants: [{name: g, match: {agent: ours}, purposes: [debug]}]", "spec.grants.0.match: agent is what a client says of itself"),
        ("consent", "headers: {opt_out: ''}", "spec.headers.opt_out: is no name of a header"),
        ("consent", "headers: {opt_out: Sec-GPC}", "spec.headers.opt_out: sec-gpc has a meaning of its own"),
        ("consent", "headers: {opt_out: X-A, purposes: x-a}", "spec.headers: purposes and opt_out name one header"),
        ("capture", "rules: [{name: r, match: {tenant: a}}]", "spec.rules.0: takes nothing away"),
        ("retention", "classes: {a: 9999999}\n  default: a", "spec.classes.a: is no whole number of days from 1 to 36500, nor `forever`"),
        ("retention", "classes: {a: yes}\n  default: a", "spec.classes.a: is no whole number of days"),
        ("retention", "classes: {a: 0}\n  default: a", "spec.classes.a: is no whole number of days"),
        ("retention", "classes: {a: 1}\n  default: a\n  rules: [{name: r, class: a}]", "spec.rules.0.match: is required"),
        ("retention", "classes: {a: 1}\n  default: a\n  rules: [{name: r, class: a, match: {}}]", "spec.rules.0.match: says nothing"),
        ("retention", "classes: {a: 1}\n  default: a\n  legal_holds: [{name: h, reference: r}]", "spec.legal_holds.0.match: is required"),
        ("retention", "classes: {a: 1}\n  default: a\n  legal_holds: [{name: h, reference: r, match: {}}]", "spec.legal_holds.0.match: says nothing"),
        ("retention", "classes: {a: 1}\n  default: a\n  legal_holds: [{name: h, reference: r, match: }]", "spec.legal_holds.0.match: "),
        ("consent", "grants: [{name: g, purposes: [debug]}]", "spec.grants.0.match: is required"),
        ("consent", "grants: [{name: g, match: {}, purposes: [debug]}]", "spec.grants.0.match: says nothing"),
        ("consent", "limits: [{name: l, match: {}, never: [debug]}]", "spec.limits.0.match: says nothing"),
        ("consent", "headers: {global_privacy_control: []}", "spec.headers.global_privacy_control: is empty"),
        ("capture", "rules: [{name: r, match: {}, level: metadata}]", "spec.rules.0.match: says nothing"),
        ("redaction", "entities: {organization: pseudonym}", "spec.entities: 'organization': entity types are in capitals. Did you mean ORGANIZATION?"),
        ("redaction", "entities: {EMAIL-ADDRESS: mask}", "spec.entities: 'EMAIL-ADDRESS': entity types are in capitals"),
        ("redaction", "disabled: [EMAIL]", "Did you mean EMAIL_ADDRESS?"),
        ("redaction", "disabled: [PASSWORD]", "spec.disabled: PASSWORD is a secret, and those are always looked for"),
        ("redaction", "disabled: [PERSON]\n  entities: {PERSON: mask}", "spec.disabled: PERSON is in `entities` too"),
        ("redaction", "thresholds: {PERSN: 0.2}", "Did you mean PERSON?"),
        ("redaction", "disabled: [AGE]\n  thresholds: {AGE: 0.2}", "spec.thresholds: unknown entity type, or one not looked for"),
        ("redaction", "subjects: []", "spec.subjects: is empty"),
        ("consent", "limits: [{name: l, match: {tenant: '[]'}, never: [debug]}]", "spec.limits.0.match.tenant: has a [ without its ], which no name has"),
        ("consent", "limits: [{name: l, match: {tenant: '[z-a]cme'}, never: [debug]}]", "spec.limits.0.match.tenant: has a range that runs backwards"),
        ("consent", "limits: [{name: l, match: {tenant: 'a[cme'}, never: [debug]}]", "spec.limits.0.match.tenant: has a [ without its ]"),
        ("consent", "limits: [{name: l, match: {tenant: '[acme]'}, never: [debug]}]", "spec.limits.0.match.tenant: fits names of one character only. Did you mean acme, or a list without quotes?"),
        ("consent", "limits: [{name: l, match: {tool: '[!a]'}, never: [debug]}]", "spec.limits.0.match.tool: fits names of one character only"),
        ("retention", "classes: {a: 1}\n  default: a\n  legal_holds: [{name: h, reference: r, match: {app: '[web'}}]", "spec.legal_holds.0.match.app: has a [ without its ]"),
        ("redaction", "allow: ['.*']", "spec.allow: takes exact values, and '.*' is a pattern"),
        ("redaction", "allow: ['*']", "spec.allow: takes exact values, and '*' is a pattern"),
        ("redaction", "allow: ['^support@acme.com$']", "spec.allow: takes exact values"),
        ("redaction", "allow: ['*@acme.com']", "spec.allow: takes exact values"),
        ("redaction", 'allow: ["\\\\d+"]', "spec.allow: takes exact values"),
        ("redaction", "thresholds: {PERSON: 1}", "spec.thresholds: PERSON: a threshold lies between 0 and 1, 1 not included: next to nothing is that sure"),
        ("redaction", "thresholds: {PERSON: yes}", "spec.thresholds.PERSON: YAML reads yes or no where a number is meant"),
        ("redaction", "timeout_seconds: true", "spec.timeout_seconds: YAML reads yes or no where a number is meant"),
        ("redaction", "key_epoch: on", "spec.key_epoch: YAML reads yes or no where a number is meant"),
        ("quality", EXPECTATION + "between, column: latency_ms, max_value: true}]", "spec.expectations.0.max_value: YAML reads yes or no where a number is meant"),
        ("quality", EXPECTATION + "in_set, column: http_status, value_set: [true]}]", "YAML reads yes or no where a number is meant"),
        ("redaction", "subjects: [LOCATION]", "spec.subjects: unknown entity type, or one not looked for"),
        ("redaction", "allow: ['support@example.com ']", "spec.allow: has blanks before or after it"),
        ("redaction", "timeout_seconds: .inf", "spec.timeout_seconds: "),
        ("quality", EXPECTATION + "between, column: leftover_findings}]", "spec.expectations.0: has no bound, so that it never fails"),
        ("quality", EXPECTATION + "between, column: leftover_findings, min_value: 5, max_value: 1}]", "spec.expectations.0: min_value is above max_value"),
        ("quality", EXPECTATION + "between, column: leftover_findings, min_value: 0}]", "leftover_findings is never below 0, so that it never fails"),
        ("quality", EXPECTATION + "between, column: finished, max_value: 1}]", "finished is 0 or 1, so that it never fails"),
        ("quality", EXPECTATION + "between, column: latency_ms, max_value: .nan}]", "spec.expectations.0.max_value: "),
        ("quality", EXPECTATION + "between, column: dialect, min_value: 1}]", "spec.expectations.0.column: dialect is a word, which lies between no numbers"),
        ("quality", EXPECTATION + "in_set, column: finished, value_set: []}]", "spec.expectations.0.value_set: is empty"),
        ("quality", EXPECTATION + "in_set, column: finished, value_set: ['1']}]", "spec.expectations.0.value_set: finished is a number, which no text equals"),
        ("quality", EXPECTATION + "in_set, column: finished, value_set: [0, 1]}]", "lists all that finished can be, so that it never fails"),
        ("quality", EXPECTATION + "in_set, column: kind, value_set: [1]}]", "kind is a word, which no number equals"),
        ("quality", EXPECTATION + "in_set, column: finished, value_set: [1], where: {kind: [modle]}}]", "spec.expectations.0.where: unknown value of kind. Valid: model, tool. Did you mean model?"),
        ("quality", EXPECTATION + "in_set, column: finished, value_set: [1], where: {kind: []}}]", "spec.expectations.0.where.kind: is empty"),
        ("quality", "expectations: [{name: e, expectation: expect_column_pair_values_to_be_equal, column_A: kind, column_B: kind}]", "spec.expectations.0.column_B: is column_A again"),
        ("quality", "expectations: [{name: e, expectation: expect_column_pair_values_to_be_equal, column_A: kind, column_B: logprobs}]", "one of kind and logprobs is a number, the other a word"),
        ("quality", "leftovers: {entities: []}", "spec.leftovers.entities: is empty"),
        ("quality", "drift: {most: .inf}", "spec.drift.most: "),
        ("quality", "drift: {reference_days: 99999999}", "spec.drift.reference_days: "),
    ],
)  # fmt: skip
def test_what_never_fits_or_never_fails_is_refused(
    folder: Path, kind: str, text: str, says: str
) -> None:
    (folder / f"{kind}.yaml").write_text(
        f"apiVersion: headrace/v1\nkind: {kind.title()}\nmetadata: {{name: x}}\nspec:\n  {text}\n"
    )
    said = problem(folder)
    assert says in said
    assert re.match(rf".*{kind}\.yaml:[5-7]: ", said)
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "match",
    [
        {"provider": ["https://api.openai.com:443", "*openai*", "https://*.openai.com:*", "stdio://files"]},
        {"provider": ["h*", "*:443", "http://127.0.0.1:80[0-9][0-9]", "?ttps://*"]},
        {"region": ["eu-*", "eu-central-[12]"], "agent": ["Claude-*", "codex_cli"], "route": "open*"},
        {"dialect": ["openai.*", "mcp", "import.atif", "http.tool", "*"], "tool": ["mail.send", "get *"]},
        {"tenant": ["acme-[12]", "[ab]*", "a[]x]b"], "app": "?"},
        {"tenant": "Acme & Sons", "model": "org/model:latest", "data_class": ["health", "gov*"]},
    ],
)  # fmt: skip
def test_what_can_fit_is_taken(match: dict[str, object]) -> None:
    Match.model_validate(match)


def test_every_column_says_what_it_holds() -> None:
    for columns, row in ((Column, StepFacts), (ItemColumn, ItemFacts)):
        texts = {field.name for field in dataclasses.fields(row) if field.type in (str, str | None)}
        assert texts == {column.value for column in columns} & TEXT_COLUMNS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 2024-99-99", "z.yaml:1: a: is no value that YAML can read; write it in quotes"),
        ("a:\n  - !!timestamp 99999-01-01", "z.yaml:2: a.0: is no value"),
        ("a: !!int x", "z.yaml:1: a: is no value"),
        ("[" * 3000, "z.yaml:1: document: lists within lists beyond reading"),
        ("- " * 2000 + "a", "z.yaml:1: document: lists within lists beyond reading"),
    ],
)
def test_what_yaml_cannot_hold_is_told_with_its_line(folder: Path, text: str, says: str) -> None:
    (folder / "z.yaml").write_text(text)
    assert says in problem(folder)


@pytest.mark.parametrize("word", ["no", "[a, 7]", "1.5"])
def test_a_word_that_yaml_takes_for_another_thing_is_told(folder: Path, word: str) -> None:
    change(
        folder,
        "consent",
        "limits: []",
        f"limits: [{{name: a, match: {{region: {word}}}, never: [eval]}}]",
    )
    assert "spec.limits.0.match.region: YAML reads a number, or yes and no" in problem(folder)


@pytest.mark.parametrize("name", ["more/capture.yaml", "a/b/rules.yml"])
def test_a_policy_document_in_a_subfolder_is_refused(folder: Path, name: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text((folder / "capture.yaml").read_text())
    said = problem(folder)
    assert f"{name}:1: document: stands in a subfolder, which is not read; move it to" in said


@pytest.mark.parametrize("name", ["tests/case.yaml", "more/x.test.yaml", ".git/capture.yaml"])
def test_test_cases_and_hidden_folders_are_no_policy(folder: Path, name: str) -> None:
    before = load_bundle(folder).content_hash
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text((folder / "capture.yaml").read_text())
    (folder / "other").mkdir()
    (folder / "other" / "schedule.yaml").write_text("a: [")
    assert load_bundle(folder).content_hash == before


@pytest.mark.parametrize(
    "value", ["support@acme.com", "C++", "Q*bert", "US$", "a.b", "[ACME] Shop"]
)
def test_exact_values_may_be_allowed(folder: Path, value: str) -> None:
    change(folder, "redaction", "  names:", f"  allow: [{json.dumps(value)}]\n  names:")
    assert load_bundle(folder).redaction.spec.allow == (value,)


def test_every_problem_is_told_at_once(folder: Path) -> None:
    change(folder, "dedup", "identical_retries", "a")
    change(folder, "retention", "legal_holds", "b")
    assert len(problem(folder).splitlines()) == 2


def test_an_error_does_not_repeat_a_secret(folder: Path) -> None:
    change(folder, "capture", "level: content", "level: sk-abcdefghijklmnop1234")
    assert "abcdefgh" not in problem(folder)


@pytest.mark.parametrize(
    "secret",
    [
        "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "glpat-abcdefghij1234567890",
        "AKIAIOSFODNN7EXAMPLE",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk",
        "https://user:pw123@host/x",
        "postgres://u:p@host/db",
        "-----BEGIN RSA PRIVATE KEY-----",
        "password=Hunter2hunter2",
    ],
)
def test_secrets_of_every_shape_are_refused(folder: Path, secret: str) -> None:
    change(folder, "consent", "grants: []", f"grants: [{{name: a, reference: '{secret}'}}]")
    assert "consent.yaml:17: " in problem(folder)
    assert "looks like a secret" in problem(folder)
    assert secret not in problem(folder)


def test_files_of_recognisers_lie_beside_and_count(folder: Path) -> None:
    plain = load_bundle(folder).content_hash
    change(folder, "redaction", "  names:", "  recognizers: [ours.yaml]\n  names:")
    ours = folder / "ours.yaml"
    ours.write_text("recognizers: []\n")
    first = load_bundle(folder).content_hash
    ours.write_text("recognizers: []  # looks for more\n")
    assert len({plain, first, load_bundle(folder).content_hash}) == 3


def test_the_readme_names_what_is_looked_for() -> None:
    said = (SHIPPED / "README.md").read_text()
    for operator in {*DEFAULT_ENTITIES.values()}:
        (row,) = (line for line in said.splitlines() if line.startswith(f"| `{operator}` |"))
        named = {*re.findall(r"`([A-Z0-9_]+)`", row)}
        assert named == {name for name, how in DEFAULT_ENTITIES.items() if how == operator}


def test_aliases_are_refused(folder: Path) -> None:
    change(folder, "capture", "rules: []", "rules: [&x {name: a}, *x]")
    assert "write it out" in problem(folder)


def test_a_bundle_needs_each_kind_once(folder: Path) -> None:
    shutil.copy(folder / "dedup.yaml", folder / "dedup2.yaml")
    assert "a second Dedup; the first is at" in problem(folder)
    (folder / "dedup2.yaml").unlink()
    (folder / "redaction.yaml").unlink()
    assert "no document of kind Redaction. A bundle has one of each" in problem(folder)


def test_a_missing_folder_names_the_shipped_bundles() -> None:
    with pytest.raises(PolicyError, match=r"Shipped bundles: .*default.*gdpr.*strict"):
        load_bundle(Path("nowhere"))


def test_the_hash_is_of_what_is_said(folder: Path, tmp_path: Path) -> None:
    before = load_bundle(folder).content_hash
    text = (folder / "dedup.yaml").read_text()
    (folder / "dedup.yaml").unlink()
    (folder / "other.yaml").write_text(
        "# a comment\n\n" + text.replace(": leave_out", ':  "leave_out"')
    )
    assert load_bundle(folder).content_hash == before
    (folder / "other.yaml").write_text(
        text.replace("identical_retries: leave_out", "identical_retries: keep")
    )
    assert load_bundle(folder).content_hash != before


def test_several_documents_may_share_a_file(folder: Path) -> None:
    before = load_bundle(folder).content_hash
    texts = [file.read_text() for file in sorted(folder.glob("*.yaml"))]
    for file in folder.glob("*.yaml"):
        file.unlink()
    (folder / "all.yaml").write_text("---\n".join(texts))
    assert load_bundle(folder).content_hash == before


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    validator = schema()
    document = {"apiVersion": "headrace/v1", "kind": "Dedup", "metadata": {"name": "x"}, "spec": {}}
    assert validator.is_valid(document)
    assert not validator.is_valid({**document, "spec": {"nope": 1}})
    assert not validator.is_valid({**document, "kind": "Nope"})
    grant = {"name": "a", "match": {"tenant": "acme"}, "purposes": ["debug"]}
    consent = {**document, "kind": "Consent", "spec": {"grants": [grant]}}
    assert validator.is_valid(consent)
    assert not validator.is_valid({**consent, "spec": {"grants": [grant | {"match": {"app": []}}]}})
    assert {*KINDS} == {"Capture", "Redaction", "Consent", "Retention", "Dedup", "Quality"}


def test_selectors_need_every_field_to_fit() -> None:
    facts = Facts(tenant="acme", app="shop-eu", tools=("refund", "search"), model="m-1")
    assert Match().fits(facts)
    assert Match(tenant=("acme", "other"), app=("shop-*",)).fits(facts)
    assert Match(tool=("ref*",)).fits(facts)
    assert not Match(tenant=("acme",), app=("crm",)).fits(facts)
    assert not Match(data_class=("health",)).fits(facts)
    assert Match.model_validate({"tenant": "ac?e"}).fits(facts)


def test_the_published_schema_is_up_to_date() -> None:
    published = json.loads((SHIPPED / "schema.json").read_text(encoding="utf-8"))
    assert published == json_schema(), "write it anew: make docs"


@pytest.mark.parametrize(
    ("kind", "old", "new", "where"),
    [
        ("consent", "grants: []", "grants: [{name: a, match: {tenant: []}, purposes: [debug]}]", "spec.grants.0.match.tenant"),
        ("consent", "limits: []", "limits: [{name: a, match: {tool: []}, never: [debug]}]", "spec.limits.0.match.tool"),
        ("capture", "rules: []", "rules: [{name: a, match: {app: []}, level: metadata}]", "spec.rules.0.match.app"),
        ("retention", "legal_holds: []", "legal_holds: [{name: a, match: {data_class: []}, reference: r}]", "spec.legal_holds.0.match.data_class"),
    ],
)  # fmt: skip
def test_an_empty_list_in_a_selector_is_refused(
    folder: Path, kind: str, old: str, new: str, where: str
) -> None:
    change(folder, kind, old, new)
    said = problem(folder)
    assert re.search(rf"{kind}\.yaml:\d+: {re.escape(where)}: is empty", said)


@pytest.mark.parametrize("nothing", ["", " null"])
def test_a_selector_without_a_value_is_refused(folder: Path, nothing: str) -> None:
    grant = (
        f"grants:\n    - name: a\n      match:\n        tenant:{nothing}\n      purposes: [debug]"
    )
    change(folder, "consent", "grants: []", grant)
    assert "spec.grants.0.match.tenant: must be a list" in problem(folder)


@pytest.mark.parametrize("field", sorted(Match.model_fields))
def test_a_selector_whose_list_is_empty_fits_nothing(field: str) -> None:
    everything = Facts("a", "b", "c", "d", "e", "f", "g", "h", ("i",), ("j",), ("k",), ("health",))
    assert not Match.model_construct(**{field: ()}).fits(everything)
    assert Match().fits(everything)


def test_a_diff_names_settings_not_layout(folder: Path) -> None:
    old = load_bundle(folder)
    (folder / "dedup.yaml").write_text("# moved\n" + (folder / "dedup.yaml").read_text())
    assert diff_bundles(old, load_bundle(folder)) == []
    change(folder, "dedup", "repeated_steps: leave_out", "repeated_steps: keep")
    change(
        folder,
        "consent",
        "grants: []",
        "grants: [{name: acme, match: {app: a}, purposes: [debug]}]",
    )
    changes = {(c.kind, c.field): (c.old, c.new) for c in diff_bundles(old, load_bundle(folder))}
    assert changes["Dedup", "repeated_steps"] == ("leave_out", "keep")
    assert changes["Consent", "grants.acme.purposes"] == (None, ["debug"])
    assert {kind for kind, _ in changes} == {"Dedup", "Consent"}
    assert ("Consent", "grants.acme.match.tenant") not in changes  # empty: it says nothing
