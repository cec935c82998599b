"""The consent registry answers with every entry of the people asked for, as they were at the last refresh."""

from datetime import timedelta
from pathlib import Path

from lakehouse.lake import Lake
from tests.lakehouse import make


def test_entries_of_subjects_and_of_everybody(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    consents = lake.consents()
    assert consents.entries("acme", ["p1"]) == []
    for subject, granted in (("p1", True), ("p1", False), ("p2", True), ("*", True)):
        lake.append_rows("consents", [{
            "tenant_id": "acme", "subject": subject, "purpose": "eval", "granted": granted,
            "source": "cli", "recorded_at": make.NOON, "reference": "T-1",
        }])  # fmt: skip
    assert consents.entries("acme", ["p1"]) == [], "between two refreshes the lake is not asked"
    consents.refresh()
    found = consents.entries("acme", ["p1", "p1"])
    assert sorted((entry.subject, entry.granted) for entry in found) == [
        ("*", True), ("p1", False), ("p1", True),
    ]  # fmt: skip
    assert found[0].reference == "T-1"
    assert consents.entries("other", ["p1"]) == []


def test_the_latest_erasure_of_the_people_asked_for(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    consents = lake.consents()
    assert consents.erased_at("acme", ["p1"]) is None
    for minute, status in enumerate(("requested", "requested", "done")):
        lake.append_rows("erasures", [{
            "tenant_id": "acme", "erasure_id": f"e{minute}", "subject": "p1", "status": status,
            "recorded_at": make.NOON + timedelta(minutes=minute), "report": "{}",
        }])  # fmt: skip
    consents.refresh()
    assert consents.erased_at("acme", ["p1", "p2"]) == make.NOON + timedelta(minutes=1)
    assert consents.erased_at("acme", ["p2"]) is None
    assert consents.erased_at("other", ["p1"]) is None


def test_when_trajectories_went_with_somebody(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    consents = lake.consents()
    lake.append_rows("erasures", [{
        "tenant_id": "acme", "erasure_id": "e1", "subject": subject, "status": status,
        "recorded_at": make.NOON + timedelta(minutes=minute), "report": report,
    } for subject in ("p1", "p2") for minute, (status, report) in enumerate((
        ("requested", "{}"),
        ("begun", '{"reach":{"trajectories":["t1","t2"]}}'),
        ("done", '{"reach":{"substrates":[],"trajectories":["t1","t2"]},"rows":{}}'),
    ))])  # fmt: skip
    consents.refresh()
    assert consents.erased_at("acme", ["t1"]) == make.NOON + timedelta(minutes=1)
    assert consents.erased_at("acme", ["p1"]) == make.NOON
    assert consents.erased_at("acme", ["t3"]) is None
    assert consents.erased_at("other", ["t1"]) is None
