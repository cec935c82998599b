"""Settings come from flags over environment over file over defaults, and know which."""

from pathlib import Path

import pytest

from headrace.app.setting_sources import (
    environment_variable,
    explain_settings,
    load_settings,
    unknown_variables,
)
from trajectory.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "HEADRACE_HOME",
        "HEADRACE_CONFIG",
        "HEADRACE_LAKE_PATH",
        "HEADRACE_GOVERN_BATCH_RECORDS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def source_of(name: str, home: Path | None = None) -> str:
    return next(setting.source for setting in explain_settings(home=home) if setting.name == name)


def test_defaults_need_nothing(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.home == tmp_path / ".headrace"
    assert settings.lake.path == str(tmp_path / ".headrace" / "lake")
    assert source_of("lake.path") == "default"


def test_file_beats_default_and_environment_beats_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text("lake: {path: /from/file}\ngovern: {batch_records: 7}\n", encoding="utf-8")
    monkeypatch.setenv("HEADRACE_LAKE_PATH", "/from/environment")
    settings = load_settings(home=tmp_path)
    assert settings.lake.path == "/from/environment"
    assert settings.govern.batch_records == 7
    assert source_of("lake.path", tmp_path) == "env HEADRACE_LAKE_PATH"
    assert source_of("govern.batch_records", tmp_path) == str(file)
    assert source_of("home", tmp_path) == "flag"


def test_a_number_in_the_environment_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_GOVERN_BATCH_RECORDS", "12")
    assert load_settings().govern.batch_records == 12


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a", "HEADRACE_LAKE_PATH:1: document: not YAML"),
        ("@here", "HEADRACE_LAKE_PATH:1: document: not YAML"),
        ("*anchor", "HEADRACE_LAKE_PATH:1: document: not YAML"),
        ("2021-13-45", "HEADRACE_LAKE_PATH:1: .*write it in quotes"),
        (
            "0100",
            "HEADRACE_LAKE_PATH:1: .*YAML reads 0100 as 64; write the number so, or in quotes",
        ),
    ],
)
def test_a_variable_that_yaml_cannot_read_is_named(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.setenv("HEADRACE_LAKE_PATH", text)
    with pytest.raises(ConfigurationError, match=expected):
        load_settings()


def test_a_variable_in_quotes_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LAKE_PATH", '"0100"')
    assert load_settings().lake.path == "0100"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("govern: {batch_records: 0}", "govern.batch_records"),
        ("lakes: {path: x}", "lakes: there is no such setting; did you mean lake?"),
        ("gateway: {spool: {max_byte: 1}}", "did you mean max_bytes?"),
        (
            "gateway: {routes: [{name: a, upstream: 'http://x', durabilty: durable}]}",
            r"gateway.routes.0.durabilty: there is no such setting; did you mean durability\?",
        ),
        (
            "{gateway: {workers: 3}, sql_server: {enabled: true}}",
            r"gateway\.admin_port \(worker 2\) and sql_server\.http_port are both 8488",
        ),
        ("gateway: {zzz: 1}", r"gateway\.zzz: no such setting\. Valid: host, port, .*routes"),
        (
            "door: {enabled: true}",
            "yaml:1: door: there is no such setting any more; write sql_server",
        ),
        ("govern: [1]", "govern"),
        ("a: [", r"headrace.yaml:\d+: document: not YAML"),
        ("- a", "mapping of sections"),
    ],
)
def test_a_wrong_file_is_named_with_its_field(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "headrace.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=expected):
        load_settings(home=tmp_path)


def test_a_variable_of_a_renamed_section_is_told_its_new_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_DOOR_PORT", "1")
    assert unknown_variables() == {"HEADRACE_DOOR_PORT": "HEADRACE_SQL_SERVER_PORT"}


DURATIONS = [
    setting.name
    for setting in explain_settings()
    if setting.name.endswith(("seconds", "hours", "days"))
]


@pytest.mark.parametrize("name", DURATIONS)
def test_a_time_beyond_all_clocks_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a time would pass the check and end a process later, where it is added to a date."""
    monkeypatch.setenv(environment_variable(name), "1e300")
    with pytest.raises(ConfigurationError, match=name):
        load_settings(home=tmp_path)


def test_every_setting_has_one_environment_variable() -> None:
    names = [setting.name for setting in explain_settings()]
    variables = [environment_variable(name) for name in names]
    assert len(set(variables)) == len(variables)
