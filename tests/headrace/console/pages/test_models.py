"""Models: a person promotes what passed its gate, and goes back; both with a reason."""

import json

from headrace.console.page import Console
from tests.headrace.console.conftest import SAME, client_of, model_of


def test_a_person_promotes_and_rolls_back(console: Console) -> None:
    good, better, refused = (model_of(console.running, passed=one) for one in (True, True, False))
    client = client_of(console, ("trainer", "*"), name="tina")

    def change(version: str, what: str, reason: str = "ticket 7") -> tuple[int, str]:
        sent = {"name": "shop", "version": version, "change": what, "reason": reason}
        answer = client.post("/models.json", data=sent, headers=SAME)
        return answer.status_code, str(answer.json().get("done"))

    assert change(good, "promote", "") == (400, "None")
    assert change(refused, "promote")[0] == 409
    assert change(good, "promote") == (200, f"shop@{good} serves")
    assert change(better, "promote") == (200, f"shop@{better} serves")
    assert change(better, "rollback") == (200, f"shop@{good} serves")
    assert change(better, "rollback")[0] == 409, "somebody else took it back already"
    told = client.get(f"/models/shop/{good}.json").json()
    assert told["status"] == "live"
    assert {one["actor"] for one in told["history"]} == {"tina"}
    assert told["history"][0]["reason"] == "ticket 7"
    left = client.get(f"/models/shop/{better}.json").json()["history"]
    assert [one["action"] for one in left] == ["promote", "rollback"], "what took its place, too"
    assert client.get("/models/..%2F..%2Fstate/0001.json").status_code in (400, 404)
    noted = [
        (one.actor, json.loads(one.detail)["reason"])
        for one in console.running.audit.entries()
        if one.action == "model.promote"
    ]
    assert ("tina", "ticket 7") in noted
