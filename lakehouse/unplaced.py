"""Signals that do not name their trajectory: most lakes have none, and then no query plans for them.

Placing them takes several joins with steps. Where a version of the table has none, the view of them
is empty by its text: DuckDB drops those joins when it plans, which saves up to a fifth of a query.
"""

from lakehouse.held import Held

HELD = Held(
    source="signals",
    needed_by="signals_placed",
    prepare=(
        "CREATE SCHEMA IF NOT EXISTS unplaced",
        "CREATE OR REPLACE VIEW unplaced.feedback AS "
        "SELECT * FROM signals WHERE trajectory_id IS NULL",
    ),
    find="SELECT count(*) AS n FROM signals WHERE trajectory_id IS NULL HAVING n > 0",
    if_none="CREATE OR REPLACE VIEW unplaced.feedback AS SELECT * FROM signals WHERE false",
)
