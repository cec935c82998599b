"""Lineage: a form asks by any name, and the answer leads on to versions, trajectories and decisions."""

from headrace.console.page import Console
from tests.headrace.console.conftest import artifact_of, client_of


def test_an_artefact_leads_to_its_trajectory_and_that_one_back(console: Console) -> None:
    version = artifact_of(
        console.running, "Ask which lamp.", name="lamp-care", tenant="acme", evidence=["t00002-0"]
    )
    client = client_of(console, ("viewer", "*"))
    assert client.get("/lineage.json").json() == {"of": "", "back": None, "on": None}
    back = client.get("/lineage", params={"of": f"lamp-care@{version}"}).text
    assert 'href="/lineage?of=t00002"' in back
    assert 'href="/trajectories/t00002"' in back
    on = client.get("/lineage.json", params={"of": "t00002"}).json()["on"]
    assert [(one["artifact"], one["version"]) for one in on["artifacts"]] == [
        ("lamp-care", version)
    ]
    assert f'href="/artefacts/lamp-care/{version}"' in client.get("/lineage?of=t00002").text
    page = client.get("/lineage", params={"of": "<b>nosuch"})
    assert (page.status_code, "<b>nosuch" in page.text) == (400, False)
