"""Artefacts: what a version says, where it comes from and how it differs; each look is an audit event."""

from headrace.console.page import Console
from tests.headrace.console.conftest import artifact_of, client_of


def test_two_versions_are_looked_at_and_compared(console: Console) -> None:
    first = artifact_of(console.running, "Ask for the order.", name="orders")
    second = artifact_of(console.running, "Ask for the invoice.", name="orders")
    client = client_of(console, ("trainer", "*"), name="tina")
    told = client.get(f"/artefacts/orders/{second}.json", params={"against": first}).json()
    assert told["difference"][-2:] == [
        "-  procedure: Ask for the order.",
        "+  procedure: Ask for the invoice.",
    ]
    assert [one["version"] for one in told["versions"]] == [first, second]
    assert told["manifest"]["licence"] == "CC0-1.0"
    page = client.get(f"/artefacts/orders/{second}").text
    assert "Ask for the invoice." in page
    assert f'href="/artefacts/orders/{second}?against={first}"' in page
    assert f'href="/artefacts/orders/{first}"' in client.get("/artefacts").text
    noted = [(one.actor, one.action, one.subject) for one in console.running.audit.entries()]
    assert noted.count(("tina", "content.read", "orders")) == 2
    assert client.get("/artefacts/orders/0099.json").status_code == 400
    assert client.get("/artefacts/..%2F..%2Fstate/0001.json").status_code in (400, 404)
