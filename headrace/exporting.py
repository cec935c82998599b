"""Export of trajectories as OpenAI message JSON-lines, only what policy allows for a purpose."""

import json
from pathlib import Path

from lakehouse.lake import Lake
from trajectory.errors import ConfigurationError
from trajectory.formats.openai_messages import export_conversation

PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl", "share")


def export_messages(lake: Lake, output: Path, *, where: str, purpose: str) -> int:
    """Write one line per trajectory; return how many.

    Raises:
        ConfigurationError: the purpose is unknown.
    """
    if purpose not in PURPOSES:
        raise ConfigurationError(f"unknown purpose {purpose!r}. Valid: {', '.join(PURPOSES)}.")
    allowed = lake.query(
        "select t.trajectory_id from trajectories t where t.trajectory_id not in ("  # noqa: S608 - the user's own condition on their own lake
        "  select s.trajectory_id from steps s left join eligible_steps e"
        "    on s.tenant_id = e.tenant_id and s.step_id = e.step_id"
        "  where e.step_id is null or not list_contains(e.purposes, $purpose)"
        f") and ({where}) order by t.started_at, t.trajectory_id",
        parameters={"purpose": purpose},
    )
    ids = allowed["trajectory_id"].to_pylist()
    with output.open("w", encoding="utf-8") as file:
        for trajectory_id in ids:
            steps = lake.conversation(trajectory_id)
            file.write(json.dumps(export_conversation(steps), ensure_ascii=False) + "\n")
    return len(ids)
