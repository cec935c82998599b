"""Values whose names stand beside them are judged by these, as JSON and as a text of JSON."""

import json
import random
import string

import pytest

from tests.governance.redaction_support import text, value
from trajectory.canonical import JsonValue

_DRAW = random.Random(4)  # noqa: S311 - made-up secrets
TOKEN = "q7" + "".join(_DRAW.choices(string.ascii_letters + string.digits, k=22))
PASSWORD = "Trxuaim73%jx"
PEOPLE = "Ottilie Brandstetter"


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ({"env": [{"name": "DB_PASSWORD", "value": PASSWORD}]}, PASSWORD),
        ({"headers": [{"name": "X-Api-Key", "value": TOKEN}]}, TOKEN),
        ({"cookies": [{"value": TOKEN, "name": "session"}]}, TOKEN),
        ([{"key": "api_token", "value": TOKEN}], TOKEN),
        ({"Parameter": {"Name": "/prod/db/password", "Value": PASSWORD}}, PASSWORD),
        ({"field": "ssn", "answer": "332786333"}, "332786333"),
        ({"field": "ssn", "value": 332786333}, "332786333"),
        ({"question": "What is your full name?", "answer": PEOPLE}, "Brandstetter"),
        ({"columns": ["id", "password"], "rows": [[1, PASSWORD]]}, PASSWORD),
        ({"columns": [{"name": "id"}, {"name": "password"}], "data": [[1, PASSWORD]]}, PASSWORD),
        ({"fields": ["id", "ssn"], "rows": [[1, 332786333]]}, "332786333"),
        ({"range": "A1:B2", "values": [["user", "password"], ["jo", PASSWORD]]}, PASSWORD),
    ],
)
def test_a_name_beside_a_value_tells_what_it_is(given: JsonValue, gone: str) -> None:
    for clean in (
        json.dumps(value(given)),
        text(json.dumps(given)),
        text(json.dumps(given, indent=2)),
    ):
        assert gone not in clean
    assert json.loads(text(json.dumps(given))) == value(given)


@pytest.mark.parametrize(
    "given",
    [
        {"Tags": [{"Key": "Name", "Value": "web-server-1"}, {"Key": "Env", "Value": "prod"}]},
        {"inputs": [{"name": "retries", "value": 3}, {"name": "model", "value": "small-1"}]},
        {"attributes": [{"key": "http.method", "value": {"stringValue": "GET"}}]},
        {"columns": ["id", "status"], "rows": [[1, "open"], [2, "closed"]]},
        {"columns": ["sku", "price"], "rows": []},
        {"matrix": [[1, 2], [3, 4]], "values": [["a", "b"], ["c", "d"]]},
        {"name": "password", "type": "string", "value": None},
        {"label": "Password policy", "value": "at least twelve characters"},
        [["name", "stars"], ["rust-lang", 5]],
    ],
)
def test_what_a_name_does_not_tell_stays(given: JsonValue) -> None:
    assert value(given) == given
    assert text(json.dumps(given)) == json.dumps(given)
