"""Verification finds each kind of damage and nothing in a healthy lake."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import write_deltalake

from governance.identifiers import Namer
from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import checkpoint, compact
from lakehouse.maintenance.verify import verify
from lakehouse.schema.tables import TABLES
from lakehouse.write.rows import to_arrow
from tests.lakehouse import make
from trajectory.canonical import canonical_json
from trajectory.errors import IntegrityError, RetryableError
from trajectory.message import Message, TextPart
from trajectory.step import StoredMessage

KEY = b"k" * 32


def test_a_healthy_lake_has_no_findings(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    for number in range(3):
        lake.append(make.batch(f"t{number}", steps=3), app_id="a", version=number)
    report = verify(lake)
    assert (report.ok, report.findings) == (True, ())
    compact(lake)
    for name in ("steps", "messages"):
        checkpoint(lake, name, commits=0)
    assert verify(lake).findings == ()


WHOLE = make.batch("t1", steps=2)

DAMAGE: dict[str, Callable[[GovernedBatch], GovernedBatch]] = {
    "each exchange stands once in the ledger":
        lambda b: replace(b, exchanges=b.exchanges + b.exchanges[:1]),
    "each step is stored once": lambda b: replace(b, steps=b.steps + b.steps[:1]),
    "each stored exchange has its step": lambda b: replace(b, steps=b.steps[:1]),
    "each step has a ledger row that says stored": lambda b: replace(b, exchanges=b.exchanges[:1]),
    "each step has a governance decision": lambda b: replace(b, governance=b.governance[:1]),
    "each message that a step names is stored": lambda b: replace(b, messages=b.messages[:-1]),
    "each harness that a step names is stored":
        lambda b: replace(b, steps=(replace(b.steps[0], harness_id="none"), b.steps[1])),
    "each step that leans on a parent has it":
        lambda b: replace(b, steps=(b.steps[0], replace(b.steps[1], parent_step_id="none"))),
    "logprobs are as many as tokens":
        lambda b: replace(b, tokens=(replace(b.tokens[0], logprobs=(-1.0, -2.0)), b.tokens[1])),
}  # fmt: skip


@pytest.mark.parametrize("check", DAMAGE)
def test_each_damage_is_found(tmp_path: Path, check: str) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(DAMAGE[check](WHOLE), app_id="a", version=0)
    report = verify(lake)
    assert not report.ok
    assert check in {finding.check for finding in report.findings}


def test_a_lost_or_changed_file_is_found(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    for number in range(2):
        lake.append(make.batch(f"t{number}"), app_id="a", version=number)
    victim = Path(lake.snapshot_of("harnesses")[0])
    victim.write_bytes(victim.read_bytes()[:-1])
    found = [(f.check, f.table) for f in verify(lake).findings]
    assert found == [("active files are as the log says", "harnesses")]
    with pytest.raises(IntegrityError, match="damaged"):
        lake.query("SELECT * FROM harnesses")
    victim.unlink()
    with pytest.raises(RetryableError, match="could not be read"):
        lake.query("SELECT * FROM harnesses")


def test_content_in_statistics_is_found(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.table("messages").alter.set_table_properties(
        {"delta.dataSkippingStatsColumns": "message_id,parts"}
    )
    lake.append(make.batch("t1"), app_id="a", version=0)
    assert verify(lake).ok, "our writer keeps no statistics of content, whatever the property says"
    stranger = to_arrow(TABLES["messages"], [make.message("user", "another writer's")])
    write_deltalake(lake.table("messages"), stranger, mode="append")
    found = {one.check: one for one in verify(lake).findings}
    leak = found.pop("the log has statistics of our ids and times only")
    assert (leak.table, leak.examples) == ("messages", ("parts",))
    assert found.keys() == {"each message is named by a step"}


def test_messages_must_be_what_their_names_say(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    value = Message("user", (TextPart("hello"),)).to_json()
    name = Namer(KEY).message_id("acme", value)
    right = StoredMessage(
        "acme", name, "user", canonical_json(value["parts"]).decode(), 5, make.NOON
    )
    lake.append(GovernedBatch(messages=(right,)), app_id="a", version=0)
    assert wrong(lake) == set()
    named = Message("user", (TextPart("hello"),), "planner").to_json()
    other = replace(right, message_id=Namer(KEY).message_id("acme", named), name="planner")
    lake.append(GovernedBatch(messages=(other,)), app_id="b", version=0)
    assert wrong(lake) == set(), "a name is part of what is named"
    forged = replace(right, parts=right.parts.replace("hello", "HELLO"))
    lake.append(GovernedBatch(messages=(forged,)), app_id="a", version=1)
    assert wrong(lake) == {"messages are what their names say"}


def wrong(lake: Lake) -> set[str]:
    """Return the checks of messages that fail; no step names these."""
    report = verify(lake, message_key=KEY)
    failed = {one.check for one in report.findings if one.severity == "error"}
    return failed - {"each message is named by a step"}
