"""A reviewer's next conversation: by what its queue matches, once for each rater, as the lake has it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.app.context import AppContext
from headrace.services.review_answers import how_far_raters_agree, next_conversation, rows_of_lake
from headrace.services.review_queues import ReviewQueue
from headrace.services.sql_server import sql_service
from lakehouse.sql_server.service import Reader
from tests.train.lakes import Session, lake_of


def queue(**match: str) -> ReviewQueue:
    questions = [
        {"name": "success", "ask": "?", "type": "yes_no"},
        {"name": "fault", "ask": "?", "type": "choice", "choices": ["tool", "facts"]},
        {"name": "remark", "ask": "?", "type": "text", "required": False},
    ]
    return ReviewQueue.model_validate({
        "apiVersion": "headrace/v1", "kind": "ReviewQueue", "metadata": {"name": "shop"},
        "spec": {"match": match, "questions": questions},
    })  # fmt: skip


def said(number: int, rater: str, name: str, **what: Any) -> dict[str, Any]:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    return {
        "tenant_id": "acme", "signal_id": f"{number}{rater}{name}", "target_kind": "trajectory",
        "target_id": f"t{number:05d}",
        # Who judged an old conversation, which the governor did not remember any more.
        "trajectory_id": None if rater == "2" else f"t{number:05d}", "name": name,
        "source_kind": "human_explicit", "source": f"rater-{rater}", "observed_at": at,
        "recorded_at": at, "is_gold": False, **what,
    }  # fmt: skip


@pytest.fixture
def app(tmp_path: Path) -> AppContext:
    made = AppContext(tmp_path, debug=False)
    made.home.create()
    lake_of(
        made.home.lake, Session(1, reward=0.0), Session(2), Session(3), Session(4, tenant="globex")
    )
    made.lake.append_rows("signals", [
        said(3, "1", "success", value=1.0), said(3, "1", "fault", label="tool"),
        said(3, "2", "success", value=1.0), said(2, "1", "success", value=0.0),
        said(2, "2", "success", value=1.0), said(3, "2", "fault", label="tool"),
        said(2, "1", "remark", rationale="long"),
    ])  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("match", "rater", "last", "expected"),
    [
        ({}, "rater-1", None, "t00004"),
        ({}, "rater-1", "t00004", "t00002"),  # of 3 all that must be answered is
        ({"tenant": "acme"}, "rater-1", None, "t00002"),
        ({"tenant": "acme"}, "rater-3", None, "t00003"),
        ({"tenant": "acme"}, "rater-2", "t00002", "t00001"),
        ({"outcome": "failed"}, "rater-1", None, "t00001"),
        ({"tenant": "globex"}, "rater-1", "t00004", None),
        ({"app_id": "nosuch"}, "rater-1", None, None),
        ({"app_id": "' OR true --"}, "rater-1", None, None),
    ],
)
def test_the_next_is_the_latest_that_the_queue_matches_and_the_rater_has_not_answered(
    app: AppContext, match: dict[str, str], rater: str, last: str | None, expected: str | None
) -> None:
    service = sql_service(app.settings, app.home, app.secrets, app.lake)
    try:

        def of_index(sql: str, /, **parameters: Any) -> list[dict[str, Any]]:
            return service.listed_rows(Reader("ida", None), sql, parameters or None)

        for rows in (rows_of_lake(app), of_index):
            found = next_conversation(rows, queue(**match), rater, last=last)
            assert (found or {}).get("trajectory_id") == expected
            both = {"raters": ["rater-1", "rater-2"]}
            assert how_far_raters_agree(rows, queue()) == [
                {"question": "success", **both, "conversations": 2, "kappa": 0.0},
                {"question": "fault", **both, "conversations": 1, "kappa": None},
            ]
    finally:
        service.close()
