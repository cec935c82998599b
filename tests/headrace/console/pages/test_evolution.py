"""Evolve: a proposal is settled once, in the name of who did, with a reason."""

import json
from datetime import UTC, datetime

from headrace.console.page import Console
from tests.headrace.console.conftest import SAME, client_of, decision


def test_a_person_settles_a_proposal_with_a_reason(console: Console) -> None:
    lake = console.running.lake
    lake.append_rows("decisions", [decision("yes1"), decision("no1")])
    client = client_of(console, ("operator", "*"), name="olga")
    page = client.get("/evolve/yes1").text
    assert "Approve" in page
    assert 'href="/trajectories/t00001"' in page
    refused = client.post("/evolve/yes1", data={"verdict": "approve", "reason": " "}, headers=SAME)
    assert refused.status_code == 400
    for name, verdict in (("yes1", "approve"), ("no1", "reject")):
        settled = client.post(
            f"/evolve/{name}.json", data={"verdict": verdict, "reason": "tried it"}, headers=SAME
        ).json()["state"]
        assert (settled["status"], settled["actor"]) == (f"{verdict}d".replace("td", "ted"), "olga")
    again = client.post("/evolve/no1", data={"verdict": "approve", "reason": "late"}, headers=SAME)
    assert (again.status_code, "is rejected already" in again.text) == (400, True)
    assert "Approve" not in client.get("/evolve/no1").text
    listed = {one["decision_id"]: one for one in client.get("/evolve.json").json()["rows"]}
    assert (listed["yes1"]["status"], listed["yes1"]["reason"]) == ("approved", "tried it")
    noted = [(one.actor, one.action, one.subject) for one in console.running.audit.entries()]
    assert ("olga", "evolution.approved", "yes1") in noted
    assert ("olga", "evolution.rejected", "no1") in noted


def test_a_viewer_reads_and_settles_nothing(console: Console) -> None:
    client = client_of(console, ("viewer", "*"), name="vera")
    assert "Approve" not in client.get("/evolve/d0001").text
    assert client.get("/evolve/nosuch").status_code == 400


def test_the_list_tells_cases_and_what_was_expected_beside_what_came(console: Console) -> None:
    document = json.loads(decision("x")["document"])
    document["saw"]["signals"] = [
        {"signal": "failure", "subject": "tool refund", "confirmed": True, "opened": True,
         "reference": {"rate": 0.9, "sessions": 90}, "case": {"rate": 0.5, "sessions": 40},
         "since": "2026-10-20"},
        {"signal": "retry", "subject": "", "confirmed": False, "opened": False,
         "reference": {"rate": 0.9, "sessions": 90}, "case": {"rate": 0.9, "sessions": 40},
         "since": None},
    ]  # fmt: skip
    later = datetime(2026, 11, 5, tzinfo=UTC)
    console.running.lake.append_rows("decisions", [
        decision("met1", status="measured", measured=0.95, met=True),
        decision("not1", status="measured", measured=0.4, met=False),
        decision("new1", as_of=later, document=json.dumps(document)),
    ])  # fmt: skip
    client = client_of(console, ("viewer", "*"))
    told = client.get("/evolve.json").json()
    assert [(one["signal"], one["state"], one["now"]) for one in told["cases"]] == [
        ("failure tool refund", "confirmed", 0.5)
    ]
    assert told["realised"] == {"as_expected": 1, "otherwise": 1}
    page = client.get("/evolve").text
    assert page.count('class="reached"') == 2
    assert "Of 2 decisions whose time came, 1 did what was expected." in page
