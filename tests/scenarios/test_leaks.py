"""Values planted in traffic of every dialect are nowhere at rest, in whatever form."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from benchmarks.leaking import measured
from tests.headrace.installations import PlantedInstallation, chat, exchange

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.slow
def test_nothing_planted_rests_outside_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    found = measured(tmp_path, seed=5, count=200)
    assert found["planted"] >= 200
    assert set(found["dispositions"]) <= {"stored", "control", "duplicate"}
    assert found["dispositions"]["stored"] > 50
    assert found["leaked"] == 0
    assert found["files"] > 10


@pytest.mark.parametrize("bundle", ["default", "strict", "gdpr", "hipaa-safe-harbor"])
def test_keys_of_json_texts_rest_nowhere(tmp_path: Path, bundle: str) -> None:
    people = {
        "maria.gonzalez@corp-mail.com": {"phone": "415-555-0132"},
        "Dilnoza Karimova": {"email": "dk@corp-mail.com", "phone": "415-555-0133"},
        "536-22-8914": {"email": "jo.frame@corp-mail.com"},
        "+1 415-555-0134": {"email": "bo.frame@corp-mail.com"},
    }
    call = {"id": "c1", "type": "function", "function": {"name": "staff", "arguments": "{}"}}
    given = {"id": "c2", "type": "function", "function": {"name": "pay", "arguments": ""}}
    given["function"] = {"name": "pay", "arguments": json.dumps({"people": people})}
    house = PlantedInstallation(tmp_path, bundle)
    counts = house.govern(
        chat(
            1,
            [
                {"role": "user", "content": "list staff"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"users": people})},
                {"role": "assistant", "content": None, "tool_calls": [given]},
                {"role": "tool", "tool_call_id": "c2", "content": json.dumps([{"text": people}])},
            ],
        )
    )
    # `strict` keeps nothing that holds such numbers unless a person grants it.
    assert counts == {"left_out" if bundle == "strict" else "stored": 1}
    assert house.at_rest(people) == {}


def test_roles_and_types_of_media_rest_nowhere(tmp_path: Path) -> None:
    image = base64.b64encode(b"\x89PNG\r\n" + b"x" * 600).decode()
    names = ("Rosalind Okafor-Brandt", "Thandiwe_Mbeki_passport", "Hannelore Brinkmann", "Gerlinde")
    source = {"type": "base64", "media_type": f"image/jpeg; name={names[1]}.jpg", "data": image}
    sound = {"data": image, "format": f"wav {names[2]}"}
    address = {"url": f"data:image/png {names[3]};base64,{image}"}
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "an image"}], "stop_reason": "end_turn",
    }  # fmt: skip
    asked = {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}],
    }
    house = PlantedInstallation(tmp_path)
    counts = house.govern(
        chat(1, [{"role": names[0], "content": "hello"}]),
        exchange(2, "/v1/messages", asked, answer),
        chat(3, [{"role": "user", "content": [{"type": "input_audio", "input_audio": sound}]}]),
        chat(4, [{"role": "user", "content": [{"type": "image_url", "image_url": address}]}]),
    )
    assert counts == {"stored": 4}
    hashed = hashlib.sha256(base64.b64decode(image)).hexdigest()
    assert house.at_rest([*names, hashed]) == {}
