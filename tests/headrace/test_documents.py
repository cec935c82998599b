"""Documents into a lake and out again: imported, governed, exported."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import run
from headrace.services.exports import export_trajectories, portable
from headrace.services.imports import find_format, import_documents
from lakehouse.lake import Lake
from proxy.spool import SpoolUnavailableError, SpoolWriter
from proxy.spool.states import Bounds, SpoolState
from tests.headrace.pipelines import pipeline
from tests.headrace.test_pipeline import fill
from tests.proxy.spool.scripts import KEY
from tests.trajectory.documents import own_trajectory
from tests.trajectory.formats.test_atif import DOCUMENT
from trajectory.canonical import canonical_json
from trajectory.exchange import ClientIdentity
from trajectory.formats.catalog import FORMATS
from trajectory.imports import document_body
from trajectory.json_form import FormError, from_json, to_json
from trajectory.portable import Trajectory

CLIENT = ClientIdentity("acme", "tests", "ci", "k1", ("share", "train_sft"))
PERSON = "maria.lopez@example.org"


def carry(home: Path, files: list[Path], name: str) -> Lake:
    """Import files into a home and govern them."""
    with SpoolWriter(home / "spool", KEY) as spool:
        import_documents(files, form=find_format(name), client=CLIENT, spool=spool)
    carried = pipeline(home)
    while carried.run_batch() is not None:
        pass
    return carried.lake


def exported(lake: Lake, home: Path, name: str) -> list[Any]:
    output = home / "out.jsonl"
    report = export_trajectories(lake, output, where="true", purpose="share", document_format=name)
    documents = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert len(documents) == report.documents
    return documents


_LAKE = ("signals", "purposes", "legal_basis", "subjects")
"""What comes back with its source and time filled in, and what the lake says itself."""


def without_signals(value: Any) -> Any:
    """Return a document without its signals, and without what its steps may be used for."""
    if isinstance(value, list):
        return [without_signals(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without_signals(item) for name, item in value.items() if name not in _LAKE}


def test_an_atif_document_comes_back_out_of_the_lake(tmp_path: Path) -> None:
    document = json.loads(json.dumps(DOCUMENT).replace("a note", f"a note to {PERSON}"))
    file = tmp_path / "run.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    carry(tmp_path, [file, file], "atif")
    lake = carry(tmp_path, [file], "atif")
    steps = lake.query("select * from steps order by step_index").to_pylist()
    assert [step["dialect"] for step in steps] == ["import.atif"] * 2
    assert steps[1]["parent_step_id"] == steps[0]["step_id"]
    assert steps[0]["key_source"] == "import"
    signals = lake.query("select name, value from signals where source_kind = 'verifier'")
    assert sorted((one["name"], one["value"]) for one in signals.to_pylist()) == [
        ("reward", 0.5),
        ("success", 1.0),
    ]
    (again,) = exported(lake, tmp_path, "atif")
    assert PERSON not in json.dumps(again)
    told = again["extra"].pop("headrace")["fields"]["steps"]
    notes = again.pop("notes")
    assert notes.startswith("a note to ")
    document.pop("notes")
    assert canonical_json(without_signals(again)) == canonical_json(without_signals(document))
    assert again["extra"]["signals"][0]["value"] == 0.5
    assert told["items"]["0"]["add"]["purposes"] == ["train_sft", "share"]


def test_what_was_judged_since_holds_when_a_document_comes_again(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    lake = carry(tmp_path, [file], "atif")
    (said,) = lake.query("select * from signals where name = 'success'").to_pylist()
    since = said["recorded_at"] + timedelta(microseconds=1)
    judged = {**said, "signal_id": "s-person", "value": 0.0, "recorded_at": since}
    lake.append_rows("signals", [judged])
    count = "select count(*) as n from signals"
    before = lake.query(count).to_pylist()
    lake = carry(tmp_path, [file], "atif")
    assert lake.query(count).to_pylist() == before
    latest = "select value from rewards_latest where name = 'success'"
    assert lake.query(latest).to_pylist() == [{"value": 0.0}]


@pytest.mark.parametrize("name", ["headrace", "otel-genai", "openenv", "adp"])
def test_every_field_of_a_trajectory_survives_the_lake(tmp_path: Path, name: str) -> None:
    whole = replace(own_trajectory(), signals=())
    whole = replace(whole, steps=whole.steps[:2])  # the gate holds broken arguments back
    file = tmp_path / "in.jsonl"
    (written,) = FORMATS[name].write([whole])
    file.write_text(json.dumps(written.document) + "\n", encoding="utf-8")
    lake = carry(tmp_path, [file], name)
    (again,) = exported(lake, tmp_path, "headrace")
    form = without_signals(to_json(from_json(Trajectory, again)))
    assert form == without_signals(to_json(whole))


def test_a_captured_trajectory_is_exported_with_times_models_and_signals(tmp_path: Path) -> None:
    fill(tmp_path)
    carried = pipeline(tmp_path)
    while carried.run_batch() is not None:
        pass
    lake = carried.lake
    exported(lake, tmp_path, "headrace")
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600
    row = lake.query("select trajectory_id from trajectories order by 1 limit 1").to_pylist()[0]
    (trajectory,) = portable(lake, [row["trajectory_id"]])
    assert len(trajectory.steps) == 2
    first, second = trajectory.steps
    assert (first.model, first.usage.input_tokens, first.finish_reason) == ("m-1", 5, "stop")
    assert str(first.timestamp) < str(second.timestamp)
    assert len(second.observed) == 1


def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    line = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    good.write_text(f"{line}\n\n{line}\n", encoding="utf-8")
    bad.write_text(f'{line}\n{{"messages": [3]}}\n', encoding="utf-8")
    assert run(["trajectory", "import", "--check", "--json", str(good)]) == 0
    assert json.loads(capsys.readouterr().out) == {"documents": 2, "trajectories": 2, "steps": 0}
    assert run(["trajectory", "import", str(bad)]) == 2
    assert f"{bad}:2: messages[0]: expected an object" in capsys.readouterr().err
    assert run(["trajectory", "import", "-f", "nosuch", str(good)]) == 2
    assert run(["trajectory", "import", str(tmp_path / "absent")]) == 2
    assert run(["trajectory", "import", str(good)]) == 0
    assert run(["trajectory", "schema"]) == 0
    assert '"$defs"' in capsys.readouterr().out


def test_a_number_that_is_too_large_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    said = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    path.write_text(json.dumps({**said, "reward": 10**400}), encoding="utf-8")
    with pytest.raises(FormError, match=r"rows\.jsonl: a number is too large"):
        import_documents([path], form=find_format("trl-conversational"), client=CLIENT, spool=None)


def test_an_import_takes_no_room_that_captures_need(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    size = len(document_body(FORMATS["atif"].read(DOCUMENT, "x")[0]))
    bounds = Bounds(max_bytes=10 * size)
    with SpoolWriter(tmp_path / "spool", KEY, bounds=bounds) as spool:
        with pytest.raises(SpoolUnavailableError, match="nothing was imported"):
            import_documents([file] * 9, form=find_format("atif"), client=CLIENT, spool=spool)
        assert spool.state is SpoolState.OPEN
        import_documents([file], form=find_format("atif"), client=CLIENT, spool=spool)
    report = pipeline(tmp_path).run_batch()
    assert report is not None
    assert report.records == 1


def test_a_wrong_document_stops_the_whole_import(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    bad.write_text(json.dumps({**DOCUMENT, "steps": [1]}), encoding="utf-8")
    told = pytest.raises(FormError, match=r"bad\.json: steps\[0\]: expected an object")
    with SpoolWriter(tmp_path / "spool", KEY) as spool, told:
        import_documents([good, bad], form=find_format("atif"), client=CLIENT, spool=spool)
    assert pipeline(tmp_path).run_batch() is None
