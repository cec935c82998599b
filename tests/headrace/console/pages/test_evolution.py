"""Evolve: a proposal is settled once, in the name of who did, with a reason."""

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
