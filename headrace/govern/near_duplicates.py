"""The near-duplicate index of an installation: opened, brought up to date from the lake, swept.

It lies in ``state/near/``, one folder for each way of comparing, and holds hashes of governed text.
It is derived: lost, damaged or made under another policy, it is built again from the lake.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from governance.near.register import COMPARED_ROLES, NAMED_LATER, NearRegister, NearStep
from governance.near.texts import MessageText, answer_text, conversation_text
from governance.policy.dedup import NearDuplicates
from headrace.app.home import Home
from lakehouse.lake import Lake
from lakehouse.read.conversations import StepConversation
from trajectory.canonical import canonical_json, content_hash
from trajectory.errors import IntegrityError
from trajectory.files import delete_lastingly
from trajectory.message import Message

type Report = Callable[[str], None]

_AT_ONCE = 2_000
_MOST_IDS = 50_000
_UNSEEN = f"""
SELECT s.tenant_id, s.app_id, s.step_id, s.trajectory_id, s.group_id, s.started_at, p.decided_at
FROM steps s JOIN (
    SELECT tenant_id, step_id, decision, decided_at FROM governance
    QUALIFY row_number() OVER (PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1
) p USING (tenant_id, step_id)
WHERE p.decision IN ('allow', 'redact') AND p.decided_at > $since
  AND s.kind = 'model' AND s.output_message_id IS NOT NULL AND s.dialect <> '{NAMED_LATER}'
  AND s.role_in_graph IN ({", ".join(f"'{role}'" for role in COMPARED_ROLES)})
ORDER BY p.decided_at, s.started_at, s.step_id
"""  # noqa: S608 - fixed names


def open_near(
    home: Home, spec: NearDuplicates | None, lake: Lake, report: Report
) -> NearRegister | None:
    """Return the register of what policy asks for, holding every step of the lake.

    None where policy compares nothing.
    """
    if spec is None:
        return None
    folder = _folder(home, spec)
    try:
        return _caught_up(NearRegister(spec, folder), lake, report)
    except IntegrityError as error:
        report(f"{error}; it is built again from the lake")
        shutil.rmtree(folder)
        return _caught_up(NearRegister(spec, folder), lake, report)


def leave_near(home: Home, spec: NearDuplicates | None) -> None:
    """Remove the indexes of other policies, once this one is in force."""
    root = home.state / "near"
    kept = None if spec is None else _folder(home, spec)
    for other in root.glob("*") if root.exists() else ():
        if other != kept:
            shutil.rmtree(other)


def _folder(home: Home, spec: NearDuplicates) -> Path:
    said = content_hash(spec.model_dump(mode="json"))
    return home.state / "near" / said.removeprefix("b2:")[:16]


def sweep_near(home: Home, lake: Lake) -> int:
    """Take out of the indexes what the lake no longer holds; return how many steps went."""
    root = home.state / "near"
    count = 0
    for folder in sorted(root.glob("*")) if root.exists() else ():
        try:
            register = NearRegister.reopen(folder)
            for names in [*register.names()]:
                count += register.forget(set(names) - _stored(lake, names))
        except IntegrityError:
            delete_lastingly([folder])
    return count


def _caught_up(register: NearRegister, lake: Lake, report: Report) -> NearRegister:
    """Add the lake's steps that were decided on after the latest that the register holds."""
    here = {name for names in register.names() for name in names}
    rows = lake.query(_UNSEEN, parameters={"since": register.seen}).to_pylist()
    unseen = [row for row in rows if row["step_id"] not in here]
    if len(unseen) > _AT_ONCE:
        report(f"near-duplicates: reading {len(unseen)} stored steps into the index")
    for start in range(0, len(unseen), _AT_ONCE):
        part = unseen[start : start + _AT_ONCE]
        said = lake.conversations(step_ids=[row["step_id"] for row in part])
        steps = [_step(row, said[row["step_id"]]) for row in part if row["step_id"] in said]
        register.find([step for step in steps if step is not None])
        whole = start + _AT_ONCE >= len(unseen)
        decided_at = rows[-1]["decided_at"] if whole else register.seen
        register.keep({row["step_id"] for row in part}, decided_at)
    return register


def _step(row: dict[str, Any], said: StepConversation) -> NearStep | None:
    if said.output is None or not said.complete:
        return None
    return NearStep(
        tenant_id=row["tenant_id"],
        app_id=row["app_id"],
        step_id=row["step_id"],
        groups=tuple(filter(None, (row["trajectory_id"], row["group_id"]))),
        started_at=row["started_at"],
        conversation=conversation_text(map(_said, reversed(said.context))),
        answer=answer_text(_said(said.output)),
    )


def _said(message: Message) -> MessageText:
    return MessageText(message.role, canonical_json(message.to_json()["parts"]).decode())


def _stored(lake: Lake, names: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(names), _MOST_IDS):
        rows = lake.query(
            "SELECT step_id FROM steps WHERE step_id IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[names[start : start + _MOST_IDS]],
        )
        found.update(rows["step_id"].to_pylist())
    return found


__all__ = ["leave_near", "open_near", "sweep_near"]
