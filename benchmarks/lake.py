"""Measures the lakehouse; the last line is one JSON object.

``ingest_vs_bare``: how fast exchanges go from the sealed spool to committed rows (opened, read by their
dialect, assembled, judged under the shipped policies with redaction switched off, appended exactly
once, the position noted), in commits of 200, as a share of bare ``write_deltalake`` calls with the same
Arrow tables in the same batches. ``append_vs_bare``: the last part of that alone, from governed rows.
``cpu_ms`` and ``bare_cpu_ms``: processor time of an exchange on both ways.
``freshness_s``: 95th percentile from the end of a batch's last exchange, before it is in the spool,
to its rows being counted by a query, at 200 exchanges/s in commits of 200. ``scan_vs_parquet``: an
aggregate through the lake's tables over the same in DuckDB on the same files.
``success_vs_parquet``: a view that says which signals hold over a query by hand of the same files with
the same answer; both by the clock and, with ``_cpu_``, in processor time. ``lookup_ms`` and ``lookup_bytes_share``:
one trajectory's whole conversation out of the compacted lake. ``peak_mib``: peak memory of each
phase, each in a process of its own. ``ingest_2000``: ``ingest`` in commits of 2,000; ``--quick`` leaves it out.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from benchmarks import lake_traffic
from governance.records import GovernedBatch
from governance.redact import settle
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact, maintain
from lakehouse.read.connection import connect
from lakehouse.read.sources import literal
from lakehouse.schema.tables import BATCH_TABLES, TABLES
from lakehouse.write.commits import append
from lakehouse.write.rows import to_arrow
from proxy.spool import SpoolWriter
from tests.lakehouse import make

STEPS_PER_TRAJECTORY = 10
CHUNK = 50_000
ROUND = 8
"""Batches that are carried, or written bare, in a row."""
WARM_UP = 600
"""Exchanges before the first that counts: their batches make tables and import."""
PAUSE_SECONDS = 0.5
VIEWS = ("trajectories", "rewards_latest", "reliability", "pass_rates")


def batches(count: int, rows: int) -> list[GovernedBatch]:
    """Return batches of ``rows`` exchanges each, in trajectories of ten steps of about 2 KB."""
    made = []
    for number in range(count):
        parts = [
            make.batch(f"b{number}-{i}", steps=STEPS_PER_TRAJECTORY)
            for i in range(rows // STEPS_PER_TRAJECTORY)
        ]
        joined: dict[str, tuple[Any, ...]] = {
            name: tuple(row for part in parts for row in getattr(part, name))
            for name in BATCH_TABLES
        }
        text = "the quick brown fox jumps over the lazy dog " * 20
        joined["messages"] = tuple(
            replace(row, parts=json.dumps([{"type": "text", "text": row.message_id + text}]))
            for row in joined["messages"]
        )
        made.append(GovernedBatch(**joined))
    return made


class Cost(NamedTuple):
    """Seconds of some work, by the clock and of all threads' processor time."""

    wall: float
    cpu: float


def ingest(folder: Path, rows: int, exchanges: int) -> dict[str, Any]:
    """Carry a spool into the lake, and write the same tables bare, some batches each in turns.

    Batches are carried without a pause, and the first one of each round is not counted: it warms what
    the pause has cooled. The bare writes begin when nothing else runs any more. Most of our time is Python's own:
    an interpreter built without profile-guided optimisation takes a fifth longer, and lowers the ratio.
    """
    lake_traffic.fill(folder / "spool", exchanges // lake_traffic.STEPS, result_words=200)
    pipeline, governor = lake_traffic.pipeline(folder, rows)
    kept = lake_traffic.keep_batches(governor)
    ratios: list[float] = []
    ours: list[Cost] = []
    bare: list[Cost] = []
    carry(pipeline, max(1, WARM_UP // rows))
    kept.clear()
    settle()  # as the governor does
    while spent := carry(pipeline, ROUND):
        time.sleep(PAUSE_SECONDS)
        alone = [written_bare(folder / "bare", batch) for batch in kept]
        kept.clear()
        ours += spent[1:]
        bare += alone[1:]
        if len(spent) > 1:
            ratios.append(
                median(one.wall for one in alone[1:]) / median(one.wall for one in spent[1:])
            )
    return {
        "batch_rows": rows,
        "exchanges_per_s": round(rows / median(one.wall for one in ours)),
        "bare_per_s": round(rows / median(one.wall for one in bare)),
        "cpu_ms": round(median(one.cpu for one in ours) / rows * 1000, 3),
        "bare_cpu_ms": round(median(one.cpu for one in bare) / rows * 1000, 3),
        "vs_bare": round(median(ratios), 3),
    }


def carry(pipeline: Pipeline, batches: int) -> list[Cost]:
    """Carry so many full batches without a pause, fewer at the end of the spool."""
    spent = []
    for _ in range(batches):
        used, begun = processor_time(), time.perf_counter()
        report = pipeline.run_batch()
        if report is None:
            break
        spent.append(Cost(time.perf_counter() - begun, processor_time() - used))
    return spent


def written_bare(folder: Path, batch: GovernedBatch) -> Cost:
    """Write the tables of a batch with nothing around."""
    tables = {name: to_arrow(TABLES[name], getattr(batch, name)) for name in BATCH_TABLES}
    used, begun = processor_time(), time.perf_counter()
    for name, table in tables.items():
        if table.num_rows:
            write_bare(folder / name, name, table)
    return Cost(time.perf_counter() - begun, processor_time() - used)


def processor_time() -> float:
    """Return the processor seconds of this process and of those that it started and that live."""
    times = [one.cpu_times() for one in psutil.Process().children()]
    return time.process_time() + float(sum(one.user + one.system for one in times))


def appends(folder: Path, rows: int, count: int) -> dict[str, Any]:
    """Compare batch appends with bare writes of the same data, taking turns."""
    lake = Lake.open(str(folder / "ours"))
    ours, bare = [], []
    for number, batch in enumerate(batches(count + 1, rows)):
        begun = time.perf_counter()
        lake.append(batch, app_id="bench", version=number)
        appended = time.perf_counter()
        tables = {name: to_arrow(TABLES[name], getattr(batch, name)) for name in BATCH_TABLES}
        ready = time.perf_counter()
        for name, table in tables.items():
            write_bare(folder / "bare" / name, name, table)
        if number:  # the first turn makes tables and imports
            ours.append(appended - begun)
            bare.append(time.perf_counter() - ready)
    return {
        "batch_rows": rows,
        "exchanges_per_s": round(rows / median(ours)),
        "bare_per_s": round(rows / median(bare)),
        "vs_bare": round(median(b / o for o, b in zip(ours, bare, strict=True)), 3),
    }


def write_bare(path: Path, name: str, table: pa.Table) -> None:
    """Append with nothing around: what any program would do."""
    write_deltalake(
        str(path),
        table,
        mode="append",
        partition_by=list(TABLES[name].partition_by),
        writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
    )


def freshness(folder: Path, seconds: float, rate: int = 200) -> dict[str, Any]:
    """Spool a second's exchanges each second, carry them, ask for their rows; see how the log grows."""
    pipeline, _ = lake_traffic.pipeline(folder, rate)
    commits, lake = int(seconds), pipeline.lake
    calls = lake_traffic.calls((commits + 1) * rate // lake_traffic.STEPS, result_words=200)
    waited, behind = [], 0.0
    with SpoolWriter(folder / "spool", lake_traffic.KEY) as writer:
        begun = time.perf_counter()
        for number in range(commits + 1):
            ready = [next(calls) for _ in range(rate)]
            due = begun + number + 1
            time.sleep(max(0.0, due - time.perf_counter()))
            for place, call in enumerate(ready):
                lake_traffic.write(writer, number * rate + place, *call)
            pipeline.run_batch()
            counted = lake.query("SELECT count(*) AS n FROM exchanges")["n"][0].as_py()
            assert counted == (number + 1) * rate, "the commit is not visible"
            behind = time.perf_counter() - due
            waited.append(behind)
            if number % 30 == 29:
                maintain(lake)
    waited = sorted(waited[1:])  # the first turn imports
    log = sum(p.stat().st_size for p in folder.rglob("_delta_log/*"))
    return {
        "freshness_s": round(waited[int(0.95 * (len(waited) - 1))], 3),
        "behind_at_end_s": round(behind, 3),
        "log_kib_per_commit": round(log / 1024 / (commits + 1), 1),
    }


_GENERATE = {
    "steps": """
        SELECT 'acme' AS tenant_id, 'shop' AS app_id, 'prod' AS environment, t AS trajectory_id,
          't' || md5(i::VARCHAR) AS step_id, i % 10 AS step_index,
          CASE WHEN i % 10 > 0 THEN 't' || md5((i - 1)::VARCHAR) END AS parent_step_id,
          0 AS branch, 'model' AS kind, 'agent' AS role_in_graph, 'header' AS key_source,
          md5('x' || i) AS exchange_id, 'openai' AS route, 'openai.chat' AS dialect,
          seen AS started_at, seen + INTERVAL 2 SECOND AS ended_at, 2 * (i % 10) AS context_keep,
          ['b2:' || md5('u' || i)] AS context_message_ids, 'b2:' || md5('a' || i) AS output_message_id,
          [] AS tool_calls, [] AS tool_results, 'm' AS model_requested, 'm@' || (i // 100000) AS model_served,
          NULL AS harness_id, '{}' AS sampling, 'chatcmpl-' || i AS response_id, 'stop' AS finish_reason,
          200 AS http_status, NULL AS error, true AS streamed, NULL AS retry_of, 1000 + i % 500 AS input_tokens,
          100 + i % 77 AS output_tokens, NULL AS cached_input_tokens, 1500.0 AS latency_ms,
          200.0 AS time_to_first_token_ms, md5('s' || i) AS state_hash, 'text' AS capture_level,
          'none' AS replay_class, md5('h' || i // 10) AS session_hint, md5('g' || i // 40) AS group_id,
          '{}' AS ext, 1 AS schema_version FROM made""",
    "messages": """
        SELECT 'acme' AS tenant_id, 'b2:' || md5(r.letter || i) AS message_id, r.role AS role,
          '[{"type":"text","text":"' || list_aggregate(list_transform(range($words),
            lambda k: md5(r.letter || i || '/' || k)), 'string_agg', ' ') || '"}]' AS parts,
          $words * 33 AS characters, seen AS first_seen_at, NULL AS name, NULL AS content_id
        FROM made, (VALUES ('u', 'user'), ('a', 'assistant')) r(letter, role)""",
    "governance": """
        SELECT 'acme' AS tenant_id, 't' || md5(i::VARCHAR) AS step_id, t AS trajectory_id,
          seen AS decided_at, seen AS started_at, 'b2:p' AS policy_hash, 'redact' AS decision,
          ['pii'] AS reasons, [$subject] AS subjects, ['contact'] AS data_classes,
          'contract' AS legal_basis, ['train_sft'] AS purposes, NULL AS consent_reference,
          'default' AS retention_class, seen + INTERVAL 1 YEAR AS expires_at, false AS legal_hold,
          '{}' AS redaction_report, MAP {'EMAIL_ADDRESS': 1} AS redaction_counts FROM made""",
    "signals": """
        SELECT 'acme' AS tenant_id, 's' || i AS signal_id, 'trajectory' AS target_kind,
          t AS target_id, t AS trajectory_id, NULL AS step_id, 'success' AS name,
          (i // 10 % 3 > 0)::INT::DOUBLE AS value, NULL AS label, NULL AS rationale,
          'verifier' AS source_kind, 'unit' AS source, NULL AS source_version, NULL AS confidence,
          seen AS observed_at, seen AS recorded_at, NULL AS supersedes, false AS is_gold
        FROM made WHERE i % 10 = 9""",
    "exchanges": """
        SELECT 'acme' AS tenant_id, md5('x' || i) AS exchange_id, 'shop' AS app_id,
          'prod' AS environment, 'k' AS key_id, 'openai' AS route, 'base_url' AS mode,
          'openai.chat' AS dialect, seen AS started_at, seen AS ended_at, 'complete' AS outcome,
          200 AS http_status, 2000 AS request_bytes, 900 AS response_bytes, 'stored' AS disposition,
          []::VARCHAR[] AS reasons, t AS trajectory_id, 't' || md5(i::VARCHAR) AS step_id,
          'b2:p' AS policy_hash, 'w' AS spool_writer, i // 10000 AS spool_segment, i AS spool_offset
        FROM made""",
}  # fmt: skip


def fill(
    folder: Path,
    steps: int,
    words: int,
    *,
    steps_per_second: float = 2,
    subject: str = "'p' || (i // 50)",
) -> dict[str, Any]:
    """Make a lake of ``steps`` steps whose trajectories are interleaved in time, chunk by chunk.

    ``subject`` is SQL for whom step ``i`` is about.
    """
    lake = Lake.open(str(folder))
    maker = connect({"threads": 1})
    begun = time.perf_counter()
    for start in range(0, steps, CHUNK):
        maker.execute(
            "CREATE OR REPLACE VIEW made AS SELECT i, 'b2:' || md5('t' || i // 10) AS t, "  # noqa: S608
            f"TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_seconds(i // {steps_per_second}) AS seen "
            f"FROM range({start}, {min(start + CHUNK, steps)}) r(i) ORDER BY hash(i)"
        )
        for name, sql in _GENERATE.items():
            spec = TABLES[name]
            sql = sql.replace("$words", str(words)).replace("$subject", subject)
            table = maker.sql(sql).to_arrow_table()
            day = table[spec.date_column].cast(pa.date32())
            whole = table.append_column("event_date", day)
            for field in spec.arrow:
                if field.nullable and field.name not in whole.column_names:
                    nothing = pa.nulls(whole.num_rows, field.type)
                    whole = whole.append_column(field, nothing)
            append(lake.log(name), whole.select(spec.arrow.names).cast(spec.arrow))
    return {"fill_s": round(time.perf_counter() - begun, 1)}


def compacted(folder: Path) -> dict[str, Any]:
    """Join and sort all files, as maintenance does."""
    lake = Lake.open(str(folder))
    begun = time.perf_counter()
    compact(lake)
    return {"compact_s": round(time.perf_counter() - begun, 1)}


AGGREGATE = (
    "SELECT model_served, count(*), avg(latency_ms), sum(input_tokens), "
    "count(DISTINCT trajectory_id) FROM {0} GROUP BY ALL"
)


SUCCESS = """
    WITH t AS (
        SELECT tenant_id, trajectory_id, sum(output_tokens) AS tokens,
               arg_max(model_served, started_at)
                   FILTER (kind = 'model' AND role_in_graph = 'agent') AS model_served,
               count(*) FILTER (kind = 'model' AND role_in_graph = 'agent') AS decisions
        FROM {steps} WHERE role_in_graph <> 'shadow' GROUP BY ALL
    ), s AS (
        SELECT tenant_id, trajectory_id,
               coalesce(value >= 0.5, lower(label) IN ('true', 'yes', 'pass', 'success')) AS success
        FROM {signals}
        WHERE name = 'success'
          AND signal_id NOT IN (SELECT supersedes FROM {signals} WHERE supersedes IS NOT NULL)
          AND (value IS NOT NULL OR label IS DISTINCT FROM 'withdrawn')
        QUALIFY row_number() OVER (
            PARTITION BY tenant_id, trajectory_id
            ORDER BY step_id IS NOT NULL, recorded_at DESC, observed_at DESC, signal_id DESC) = 1
    )
    SELECT model_served, count(*) AS trajectories, count(success) AS judged,
           count(*) FILTER (success) AS successes, avg(decisions) AS steps_mean,
           sum(tokens)::BIGINT AS output_tokens
    FROM t LEFT JOIN s USING (tenant_id, trajectory_id)
    WHERE model_served IS NOT NULL GROUP BY ALL ORDER BY ALL"""
"""`success_by_model` as somebody writes it who has only the files, for a lake whose every signal names
its trajectory."""

SUCCESS_VIEW = """SELECT model_served, trajectories, judged, successes, steps_mean, output_tokens
    FROM success_by_model ORDER BY ALL"""


def bare_source(lake: Lake, table: str) -> str:
    """Return the table's files as DuckDB reads them directly."""
    return f"read_parquet([{', '.join(map(literal, lake.snapshot_of(table)))}])"


def scan(folder: Path, repeats: int) -> dict[str, Any]:
    """Compare an aggregate and a view with DuckDB on the bare files; time the other views."""
    lake = Lake.open(str(folder))
    bare = connect()
    source = bare_source(lake, "steps")
    by_hand = SUCCESS.format(steps=source, signals=bare_source(lake, "signals"))
    assert lake.query(SUCCESS_VIEW).to_pylist() == bare.sql(by_hand).to_arrow_table().to_pylist()
    ours, direct = in_turns(
        lambda: lake.query(AGGREGATE.format("steps")),
        lambda: bare.sql(AGGREGATE.format(source)).to_arrow_table(),
        repeats,
    )
    success, hand = in_turns(
        lambda: lake.query(SUCCESS_VIEW), lambda: bare.sql(by_hand).to_arrow_table(), repeats
    )
    return {
        "scan_s": round(ours.wall, 3),
        "scan_vs_parquet": round(ours.wall / direct.wall, 2),
        "scan_cpu_vs_parquet": round(ours.cpu / direct.cpu, 2),
        "success_s": round(success.wall, 3),
        "success_vs_parquet": round(success.wall / hand.wall, 2),
        "success_cpu_vs_parquet": round(success.cpu / hand.cpu, 2),
        **{f"{name}_s": view_seconds(lake, name) for name in VIEWS},
    }


def view_seconds(lake: Lake, name: str) -> float:
    """Return how long all rows of a view take."""
    sql = f"SELECT count(*) FROM (SELECT * FROM {name})"  # noqa: S608
    return round(timed(lambda: lake.query(sql), 1), 2)


def eligible(folder: Path) -> dict[str, Any]:
    """Time the view that training reads."""
    lake = Lake.open(str(folder))
    sql = "SELECT count(*) FROM eligible_steps WHERE list_contains(purposes, 'train_sft')"
    return {"eligible_steps_s": round(timed(lambda: lake.query(sql), 1), 2)}


def lookup(folder: Path, repeats: int) -> dict[str, Any]:
    """Read single trajectories' whole conversations; count the bytes that were read."""
    lake = Lake.open(str(folder))
    names = lake.query(
        f"SELECT trajectory_id FROM steps USING SAMPLE {repeats + 1} ROWS (reservoir, 7)"  # noqa: S608
    )["trajectory_id"].to_pylist()
    total = sum(p.stat().st_size for p in folder.rglob("*.parquet"))
    lake.conversation(names[0])
    times, spent, read = [], [], []
    for name in names[1:]:
        before, begun, used = bytes_read(), time.perf_counter(), time.process_time()
        found = lake.conversation(name)
        times.append(time.perf_counter() - begun)
        spent.append(time.process_time() - used)
        read.append(bytes_read() - before)
        assert len(found) == STEPS_PER_TRAJECTORY
        assert all(one.complete for one in found)
    return {
        "lookup_ms": round(median(times) * 1000, 1),
        "lookup_cpu_ms": round(median(spent) * 1000, 1),
        "lookup_bytes_share": round(median(read) / total, 5),
        "lake_mib": round(total / 2**20),
    }


def bulk(folder: Path, steps: int) -> dict[str, Any]:
    """Rebuild the conversations of many steps, as the trainer does."""
    lake = Lake.open(str(folder))
    names = lake.query(f"SELECT step_id FROM steps LIMIT {steps}")["step_id"].to_pylist()  # noqa: S608
    begun = time.perf_counter()
    found = lake.conversations(step_ids=names)
    spent = time.perf_counter() - begun
    assert len(found) == len(names)
    return {"conversations_per_s": round(len(found) / spent)}


def late_reward(folder: Path) -> dict[str, Any]:
    """Append one reward and see it in the view."""
    lake = Lake.open(str(folder))
    lake.query("SELECT 1")
    lake.append_rows("signals", [make.signal("early", 1.0)])  # imports what Arrow imports late
    row = make.signal("late", 1.0)
    begun = time.perf_counter()
    lake.append_rows("signals", [row])
    committed = time.perf_counter()
    found = lake.query("SELECT value FROM rewards_latest WHERE target_id = 'late'")
    assert found.num_rows == 1
    return {
        "late_reward_append_ms": round((committed - begun) * 1000, 1),
        "late_reward_query_ms": round((time.perf_counter() - committed) * 1000, 1),
    }


def timed(work: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of ``work``, after one run that warms the cache; of that with 0."""
    spent = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begun)
    return median(spent[1:] or spent)


def in_turns(one: Callable[[], Any], other: Callable[[], Any], repeats: int) -> tuple[Cost, Cost]:
    """Return what two kinds of work cost that take turns, after a run of each; short ones more often."""
    rounds: tuple[list[Cost], list[Cost]] = ([], [])
    due = time.perf_counter() + 2
    while len(rounds[0]) <= repeats or (time.perf_counter() < due and len(rounds[0]) < 100):
        for work, found in zip((one, other), rounds, strict=True):
            begun, used = time.perf_counter(), time.process_time()
            work()
            found.append(Cost(time.perf_counter() - begun, time.process_time() - used))
    first, second = (Cost(*map(median, zip(*found[1:], strict=True))) for found in rounds)
    return first, second


def bytes_read() -> int:
    """Return the bytes that this process has read so far, from cache or disk."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar"):
            return int(line.split()[1])
    return 0


def phase(name: str, *arguments: object) -> dict[str, Any]:
    """Run one phase in a process of its own and return what it measured, with its peak memory."""
    command = [sys.executable, "-m", "benchmarks.lake", "--phase", name, *map(str, arguments)]
    print(f"{name} {' '.join(map(str, arguments[1:]))} …", file=sys.stderr, flush=True)
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    measured: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return measured


PHASES: dict[str, Callable[..., dict[str, Any]]] = {
    "ingest": lambda folder, rows, count: ingest(Path(folder), int(rows), int(count)),
    "append": lambda folder, rows, count: appends(Path(folder), int(rows), int(count)),
    "freshness": lambda folder, seconds: freshness(Path(folder), float(seconds)),
    "fill": lambda folder, steps, words: fill(Path(folder), int(steps), int(words)),
    "compact": lambda folder: compacted(Path(folder)),
    "scan": lambda folder, repeats: scan(Path(folder), int(repeats)),
    "eligible": lambda folder: eligible(Path(folder)),
    "lookup": lambda folder, repeats: lookup(Path(folder), int(repeats)),
    "bulk": lambda folder, steps: bulk(Path(folder), int(steps)),
    "late_reward": lambda folder: late_reward(Path(folder)),
}


def run_phase(name: str, arguments: list[str]) -> None:
    """Run one phase here and print its measurements."""
    measured = PHASES[name](*arguments)
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024
    print(json.dumps({**measured, "peak_mib": round(peak)}))


def main() -> None:
    """Run all phases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, within 50 s")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=12, help="words of 32 letters per message")
    parser.add_argument("--seconds", type=float, default=60, help="how long to sustain commits")
    parser.add_argument("--phase", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        run_phase(options.phase[0], options.phase[1:])
        return
    quick = options.quick
    steps = 40_000 if quick else options.steps
    seconds = 4 if quick else options.seconds
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        parts = {
            "ingest": phase("ingest", folder / "whole", 200, 2_200 if quick else 10_000),
            "append_200": phase("append", folder / "small", 200, 5 if quick else 20),
            "append": phase("append", folder / "large", 2_000, 3 if quick else 10),
            "freshness": phase("freshness", folder / "fresh", seconds),
            "fill": phase("fill", folder / "lake", steps, 6 if quick else options.words),
            "compact": phase("compact", folder / "lake"),
            "scan": phase("scan", folder / "lake", 3),
            "eligible": phase("eligible", folder / "lake"),
            "lookup": phase("lookup", folder / "lake", 5 if quick else 20),
            "bulk": phase("bulk", folder / "lake", 5_000 if quick else 100_000),
            "late_reward": phase("late_reward", folder / "lake"),
        }
        if not quick:
            parts["ingest_2000"] = phase("ingest", folder / "bulk", 2_000, 30_000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    peaks = {name: part.pop("peak_mib") for name, part in parts.items()}
    summary = {
        "steps": steps,
        "ingest_vs_bare": parts["ingest"]["vs_bare"],
        "append_vs_bare": parts["append"]["vs_bare"],
        "freshness_s": parts["freshness"]["freshness_s"],
        "scan_vs_parquet": parts["scan"]["scan_vs_parquet"],
        "success_vs_parquet": parts["scan"]["success_vs_parquet"],
        "lookup_ms": parts["lookup"]["lookup_ms"],
        "lookup_bytes_share": parts["lookup"]["lookup_bytes_share"],
        "peak_mib": max(peaks.values()),
        "peaks_mib": peaks,
        **parts,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
