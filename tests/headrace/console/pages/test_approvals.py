"""Approvals: what waits is listed, shown with its evidence, decided once with a reason, and written down."""

from headrace.console.page import Console
from tests.headrace.console.conftest import HOSTILE, SAME, client_of, held_call


def test_a_held_call_is_approved_with_a_reason(console: Console) -> None:
    running = console.running
    name = held_call(running, "refund", order="<b>7</b>", note=HOSTILE[0])
    client = client_of(console, ("operator", "acme"), name="olga")
    listed = client.get("/approvals.json").json()
    assert name in {one["approval_id"] for one in listed["waiting"]}
    assert "refund" not in str(listed), "the list holds no content"
    assert listed["decisions"] == listed["candidates"] == [], "these belong to no tenant"
    page = client.get(f"/approvals/{name}").text
    assert "<code>refund</code>" in page
    assert "&lt;b&gt;7&lt;/b&gt;" in page
    assert HOSTILE[0] not in page
    assert 'href="/trajectories/t00001' in page
    sent = {"verdict": "approve", "reason": ""}
    assert client.post(f"/approvals/{name}", data=sent, headers=SAME).status_code == 400
    sent = {"verdict": "approve", "reason": "known customer"}
    data = client.post(f"/approvals/{name}.json", data=sent, headers=SAME).json()
    state = data["state"]
    assert (state["status"], state["decided_by"], state["reason"]) == (
        "approved", "olga", "known customer",
    )  # fmt: skip
    assert data["asked"] is None, "what was asked is gone"
    again = client.post(f"/approvals/{name}", data=sent, headers=SAME)
    assert again.status_code == 400
    decided = client.get("/approvals.json").json()["decided"]
    assert name in {one["approval_id"] for one in decided}
    noted = {(one.actor, one.action, one.subject) for one in running.audit.entries()}
    assert {("olga", "approval.read", name), ("olga", "approval.approved", name)} <= noted


def test_another_tenants_call_is_not_there(console: Console) -> None:
    name = held_call(console.running, "refund", order="8")
    client = client_of(console, ("operator", "globex"), name="otto")
    assert name not in client.get("/approvals").text
    assert client.get(f"/approvals/{name}").status_code == 404
    sent = {"verdict": "deny", "reason": "no"}
    assert client.post(f"/approvals/{name}", data=sent, headers=SAME).status_code == 404


def test_who_sees_every_tenant_sees_promotions_and_decisions(console: Console) -> None:
    listed = client_of(console, ("viewer", "*")).get("/approvals.json").json()
    assert [one["decision_id"] for one in listed["decisions"]] == ["d0001"]
    assert [one["name"] for one in listed["candidates"]] == ["shop"]
