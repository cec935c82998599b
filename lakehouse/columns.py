"""The columns of every table, with their types, comments and whether they hold content."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_INT = pa.int64()
_REAL = pa.float64()
_FLAG = pa.bool_()
_TEXTS = pa.list_(pa.string())
_COUNTS = pa.map_(pa.string(), pa.int64())
_TOOL_CALLS = pa.list_(
    pa.struct(
        [("call_id", _TEXT), ("name", _TEXT), ("arguments", _TEXT), ("arguments_valid", _FLAG)]
    )
)
_TOOL_RESULTS = pa.list_(pa.struct([("call_id", _TEXT), ("content", _TEXT), ("is_error", _FLAG)]))
_LINKS_TO = pa.list_(
    pa.struct(
        [
            ("kind", _TEXT),
            ("from_step_id", _TEXT),
            ("trajectory_id", _TEXT),
            ("recorded_at", _TIME),
            ("key_source", _TEXT),
        ]
    )
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: Any
    """An Arrow data type."""
    comment: str
    nullable: bool = False
    content: bool = False
    """True for text that people or models wrote and for pseudonyms: kept out of all statistics."""


def _need(name: str, kind: Any, comment: str) -> Column:
    return Column(name, kind, comment)


def _may(name: str, kind: Any, comment: str) -> Column:
    return Column(name, kind, comment, nullable=True)


def _content(name: str, kind: Any, comment: str, *, nullable: bool = False) -> Column:
    return Column(name, kind, comment, nullable=nullable, content=True)


_TENANT = _need("tenant_id", _TEXT, "Whose data this is; partition")
_TRAJECTORY = _need("trajectory_id", _TEXT, "The trajectory")
_STEP = _need("step_id", _TEXT, "The step")

_MESSAGES = (
    _TENANT,
    _need("message_id", _TEXT, "Keyed hash of the redacted message's canonical JSON"),
    _need("role", _TEXT, "system, developer, user, assistant or tool"),
    _content("parts", _TEXT, "JSON list of typed parts, redacted"),
    _need("characters", _INT, "Length of the message's text"),
    _need("first_seen_at", _TIME, "When this content was first stored"),
    _content("name", _TEXT, "What the participant called itself, redacted", nullable=True),
)

_HARNESSES = (
    _TENANT,
    _need("harness_id", _TEXT, "Hash of the redacted harness"),
    _content("system_prompt", _TEXT, "System prompt, redacted"),
    _content("tools", _TEXT, "JSON list of tool definitions"),
    _content("sampling", _TEXT, "JSON of the sampling defaults"),
    _need("first_seen_at", _TIME, "When this harness was first stored"),
    _content("ext", _TEXT, "JSON of fields that the protocol does not know, redacted"),
)

_TOKENS = (
    _TENANT,
    _TRAJECTORY,
    _STEP,
    _need("started_at", _TIME, "When the step began"),
    _may("tokenizer_id", _TEXT, "Which tokenizer the ids belong to"),
    _content("prompt_token_ids", pa.list_(pa.int32()), "Ids of the prompt", nullable=True),
    _content("completion_token_ids", pa.list_(pa.int32()), "Ids of the completion"),
    _content("logprobs", pa.list_(_REAL), "Natural log per completion token", nullable=True),
    _content("loss_mask", pa.list_(_FLAG), "False where redaction masked a token", nullable=True),
    _may("model_served", _TEXT, "Model version that sampled the tokens"),
    _need("token_fidelity", _TEXT, "exact, pseudonymised_inline, span_masked or none"),
)

_STEPS = (
    _TENANT,
    _need("app_id", _TEXT, "Application of the client key"),
    _need("environment", _TEXT, "Environment of the client key"),
    _TRAJECTORY,
    _STEP,
    _need("step_index", _INT, "Position along the path from the root, from 0"),
    _may("parent_step_id", _TEXT, "The step whose conversation this one goes on"),
    _need("branch", _INT, "0 for the first child of its parent, counting up for forks"),
    _need("kind", _TEXT, "model or tool"),
    _need("role_in_graph", _TEXT, "agent, auxiliary, discarded, compaction or shadow"),
    _need("key_source", _TEXT, "What told the trajectory; prefix and none are inferred"),
    _need("exchange_id", _TEXT, "The exchange in the ledger"),
    _need("route", _TEXT, "Configured route of the gateway"),
    _need("dialect", _TEXT, "Wire dialect"),
    _need("started_at", _TIME, "When the call began"),
    _may("ended_at", _TIME, "When the call ended"),
    _need("context_keep", _INT, "Messages of the parent's conversation that still lead this one"),
    _need("context_message_ids", _TEXTS, "Messages that are new in this step, in order"),
    _may("output_message_id", _TEXT, "The assistant's answer"),
    _content("tool_calls", _TOOL_CALLS, "Tool calls of the output; arguments as redacted JSON"),
    _content(
        "tool_results",
        _TOOL_RESULTS,
        "Tool results produced, redacted; of those observed the errors' beginnings (messages hold the rest)",
    ),
    _may("model_requested", _TEXT, "Model that the client asked for"),
    _may("model_served", _TEXT, "Model version that answered"),
    _may("harness_id", _TEXT, "The harness around the model"),
    _content("sampling", _TEXT, "JSON of the sampling parameters as really sent"),
    _may("response_id", _TEXT, "Id that the model API gave to the client"),
    _may("finish_reason", _TEXT, "Why generation stopped; null when it was cut off"),
    _may("http_status", _INT, "HTTP status of the answer"),
    _content("error", _TEXT, "Error of provider or tool, redacted", nullable=True),
    _need("streamed", _FLAG, "Whether the answer was streamed"),
    _may("retry_of", _TEXT, "The failed attempt that this step repeats"),
    _may("input_tokens", _INT, "Input tokens as reported"),
    _may("output_tokens", _INT, "Output tokens as reported"),
    _may("cached_input_tokens", _INT, "Cached input tokens as reported"),
    _may("latency_ms", _REAL, "Milliseconds from request to end"),
    _may("time_to_first_token_ms", _REAL, "Milliseconds to the first byte of the answer"),
    _may(
        "state_hash",
        _TEXT,
        "Hash of the redacted observation that this step acted on, call ids left out",
    ),
    _need("capture_level", _TEXT, "tokens, logprobs or text"),
    _need("replay_class", _TEXT, "deterministic, approximate or none"),
    _may("session_hint", _TEXT, "Keyed hash of the client's own session name"),
    _may("group_id", _TEXT, "Task or group that several attempts share"),
    _content("ext", _TEXT, "JSON of fields that the protocol does not know, redacted"),
    _need("schema_version", _INT, "Version of the stored protocol"),
)

_LINKS = (
    _TENANT,
    _need("kind", _TEXT, "prefix, retry, fork, subagent_call, subagent_return, compaction, …"),
    _need("from_step_id", _TEXT, "The earlier step"),
    _need("to_step_id", _TEXT, "The later step"),
    _TRAJECTORY,
    _need("recorded_at", _TIME, "When the link was seen"),
    _need("key_source", _TEXT, "What told the link"),
)

_CORRECTIONS = (
    _TENANT,
    _STEP,
    _need("trajectory_id", _TEXT, "The trajectory that the step belongs to now"),
    _need("stored_trajectory_id", _TEXT, "The trajectory that it was stored in"),
    _need("began", _FLAG, "Whether it began the trajectory that it was stored in"),
    _need("started_at", _TIME, "When the step began"),
    _need("recorded_at", _TIME, "When the correction was made; the latest row holds"),
    _may("parent_step_id", _TEXT, "The step whose conversation this one goes on"),
    _need("step_index", _INT, "Position along the path from the root, from 0"),
    _need("branch", _INT, "0 for the first child of its parent, counting up for forks"),
    _need("role_in_graph", _TEXT, "agent, auxiliary, discarded or compaction"),
    _need("key_source", _TEXT, "What told the trajectory"),
    _may("context_keep", _INT, "Messages of the parent's conversation; null: all stays as stored"),
    _need("context_skip", _INT, "Stored new messages that the parent's conversation holds by now"),
    _need("results_skip", _INT, "Tool results in these messages"),
    _may("retry_of", _TEXT, "The failed attempt that this step repeats"),
    _may("duplicate_of", _TEXT, "The step that this one only repeats; it counts no longer"),
    _may("session_hint", _TEXT, "Keyed hash of the client's own session name"),
    _may("group_id", _TEXT, "Task or group that several attempts share"),
    _may("side_effect", _TEXT, "Of a tool step: what it does to the world"),
    _may("replay_class", _TEXT, "Of a tool step: deterministic, approximate or none"),
    _need("links", _LINKS_TO, "All links that end at the step"),
)

_SIGNALS = (
    _TENANT,
    _need("signal_id", _TEXT, "Identity of the signal; a repeated one counts once"),
    _need("target_kind", _TEXT, "token_span, step, response, trajectory, session or group"),
    _need("target_id", _TEXT, "What the signal is about"),
    _may("trajectory_id", _TEXT, "Trajectory, when it was known at writing"),
    _may("step_id", _TEXT, "Step, when it was known at writing"),
    _need("name", _TEXT, "Name of the measure, e.g. success"),
    _may("value", _REAL, "Number"),
    _content("label", _TEXT, "Label", nullable=True),
    _content("rationale", _TEXT, "Reason given, redacted", nullable=True),
    _need("source_kind", _TEXT, "env, verifier, human_explicit, human_implicit, judge or rule"),
    _need("source", _TEXT, "Who judged"),
    _may("source_version", _TEXT, "Version of the judge"),
    _may("confidence", _REAL, "Confidence of the judge"),
    _need("observed_at", _TIME, "When the outcome was observed"),
    _need("recorded_at", _TIME, "When Headrace received it"),
    _may("supersedes", _TEXT, "signal_id that this one replaces"),
    _need("is_gold", _FLAG, "Whether the value is a reference"),
)

_GOVERNANCE = (
    _TENANT,
    _STEP,
    _TRAJECTORY,
    _need("decided_at", _TIME, "When policy decided"),
    _need("started_at", _TIME, "When the step began"),
    _need("policy_hash", _TEXT, "Content hash of the policy bundle"),
    _need("decision", _TEXT, "allow, redact, quarantine or drop"),
    _need("reasons", _TEXTS, "Why, in fixed words"),
    _content("subjects", _TEXTS, "Keyed pseudonyms of the people concerned"),
    _need("data_classes", _TEXTS, "Classes of personal data that were found"),
    _need("legal_basis", _TEXT, "Legal basis"),
    _need("purposes", _TEXTS, "Purposes allowed at the time of the decision"),
    _may("consent_reference", _TEXT, "Which consent was relied on"),
    _need("retention_class", _TEXT, "Retention class"),
    _may("expires_at", _TIME, "When retention ends; null means never"),
    _need("legal_hold", _FLAG, "Whether a legal hold stops deletion"),
    _content("redaction_report", _TEXT, "JSON: counts, places and detector versions; no values"),
    _need("redaction_counts", _COUNTS, "Redactions per entity type"),
)

_QUARANTINE = (
    _TENANT,
    _need("quarantine_id", _TEXT, "Identity of the case; the latest row is its state"),
    _need("exchange_id", _TEXT, "The exchange in the ledger"),
    _may("trajectory_id", _TEXT, "The trajectory, when known"),
    _may("step_id", _TEXT, "The step, when known"),
    _need("started_at", _TIME, "When the exchange began"),
    _need("recorded_at", _TIME, "When it was set aside"),
    _need("stage", _TEXT, "read, redact, quality or policy"),
    _need("reason", _TEXT, "Why, in fixed words"),
    _content("detail", _TEXT, "JSON with counts and field names, never values"),
    _need("policy_hash", _TEXT, "Content hash of the policy bundle"),
    _need("status", _TEXT, "held, released or dropped"),
)

_EXCHANGES = (
    _TENANT,
    _need("exchange_id", _TEXT, "Identity that the gateway gave"),
    _need("app_id", _TEXT, "Application of the client key"),
    _need("environment", _TEXT, "Environment of the client key"),
    _need("key_id", _TEXT, "Public name of the client key"),
    _need("route", _TEXT, "Configured route of the gateway"),
    _need("mode", _TEXT, "base_url, forward, transparent or stdio"),
    _need("dialect", _TEXT, "Wire dialect"),
    _need("started_at", _TIME, "When the exchange began"),
    _may("ended_at", _TIME, "When it ended"),
    _need("outcome", _TEXT, "complete, client_abort, upstream_abort, refused or lost_end"),
    _may("http_status", _INT, "HTTP status of the answer"),
    _need("request_bytes", _INT, "Size of the request body on the wire"),
    _need("response_bytes", _INT, "Size of the response body on the wire"),
    _need("disposition", _TEXT, "stored, duplicate, left_out, quarantined, control or erased"),
    _need("reasons", _TEXTS, "Why, in fixed words"),
    _may("trajectory_id", _TEXT, "The trajectory, when stored"),
    _may("step_id", _TEXT, "The step, when stored"),
    _need("policy_hash", _TEXT, "Content hash of the policy bundle"),
    _need("spool_writer", _TEXT, "Writer of the spool record"),
    _need("spool_segment", _INT, "Segment of the spool record"),
    _need("spool_offset", _INT, "Byte offset of the spool record"),
)

_CONSENTS = (
    _TENANT,
    _content("subject", _TEXT, "Keyed pseudonym; * stands for everybody of the tenant"),
    _need("purpose", _TEXT, "Purpose"),
    _need("granted", _FLAG, "False when consent was withdrawn"),
    _need("source", _TEXT, "Who recorded it"),
    _need("recorded_at", _TIME, "When; the latest row of subject and purpose holds"),
    _may("reference", _TEXT, "Ticket or document"),
)

_ERASURES = (
    _TENANT,
    _need("erasure_id", _TEXT, "Identity of the erasure"),
    _content("subject", _TEXT, "Keyed pseudonym"),
    _need("status", _TEXT, "requested or done"),
    _need("recorded_at", _TIME, "When this state was reached"),
    _may("reference", _TEXT, "Ticket or document"),
    _content("report", _TEXT, "JSON: rows removed per table, substrates, runs, models concerned"),
)

_SUBSTRATES = (
    _need("name", _TEXT, "Name of the selection"),
    _need("version", _TEXT, "Version of the selection"),
    _need("built_at", _TIME, "When it was built"),
    _need("recorded_at", _TIME, "When this row was written; the latest one holds"),
    _need("items", _INT, "How many items it holds"),
    _content("manifest", _TEXT, "JSON: table versions, policy hash, query, counts, quality"),
    _need("content_hash", _TEXT, "Hash of the item list"),
    _need("stale", _FLAG, "True when an item was erased or lost its consent"),
    _may("stale_reason", _TEXT, "Why it is stale"),
)

_SUBSTRATE_ITEMS = (
    _TENANT,
    _need("substrate", _TEXT, "Name of the substrate"),
    _need("version", _TEXT, "Version of the substrate"),
    _need("item_id", _TEXT, "Identity of the item"),
    _TRAJECTORY,
    _STEP,
    _need("split", _TEXT, "train, validation or test"),
    _need("weight", _REAL, "Weight in training"),
    _may("reward", _REAL, "Reward at the time of building"),
    _may("group_id", _TEXT, "Task or group that several attempts share"),
    _may("exchange_id", _TEXT, "The exchange in the ledger"),
    _may("policy_hash", _TEXT, "Policy that allowed the item"),
)

_RUNS = (
    _need("run_id", _TEXT, "Identity of the run"),
    _need("recorded_at", _TIME, "When this row was written; the latest one holds"),
    _need("recipe", _TEXT, "Recipe of the ladder"),
    _need("substrate", _TEXT, "Name of the substrate"),
    _need("substrate_version", _TEXT, "Version of the substrate"),
    _need("base_model", _TEXT, "What training began with"),
    _need("started_at", _TIME, "When the run began"),
    _may("ended_at", _TIME, "When the run ended"),
    _need("status", _TEXT, "running, done or failed"),
    _need("seed", _INT, "Seed"),
    _content("metrics", _TEXT, "JSON of the metrics"),
    _content("manifest", _TEXT, "JSON: versions, settings, cost, environment"),
)

_MODELS = (
    _need("name", _TEXT, "Name of the model"),
    _need("version", _TEXT, "Version of the model"),
    _need("recorded_at", _TIME, "When this row was written; the latest one holds"),
    _may("run_id", _TEXT, "Run that trained it"),
    _need("path", _TEXT, "Where the weights are, relative to the home folder"),
    _may("base", _TEXT, "name@version or path that training began with"),
    _need("status", _TEXT, "candidate, live, retired or refused"),
    _content("gate", _TEXT, "JSON: what the gate measured and said"),
    _may("weights_hash", _TEXT, "Hash of the weights"),
    _may("reason", _TEXT, "Why the status changed"),
    _may("actor", _TEXT, "Who changed the status"),
)

_CREDITS = (
    _TENANT,
    _TRAJECTORY,
    _STEP,
    _need("recorded_at", _TIME, "When it was computed; the latest row holds"),
    _need("computation_id", _TEXT, "Rows that were computed together"),
    _need("algorithm", _TEXT, "Name of the algorithm"),
    _need("algorithm_version", _TEXT, "Version of its definition"),
    _need("parameters", _TEXT, "Canonical JSON of its parameters"),
    _need("weights_hash", _TEXT, "Hash of the signal weights that made the reward"),
    _may("substrate", _TEXT, "name@version of the substrate that the weights stand in"),
    _need("group_id", _TEXT, "Task that the attempts share; the trajectory when it has none"),
    _need("position", _INT, "Place of the step among the trajectory's decisions, from 0"),
    _need("decisions", _INT, "Decisions of the trajectory"),
    _need("reward", _REAL, "Reward of the trajectory"),
    _need("step_reward", _REAL, "Share of it that was earned at this step"),
    _need("advantage", _REAL, "Credit of the step"),
    _need(
        "peers", _INT, "Attempts or steps that it was compared with; 0 says nothing about better"
    ),
)

_PRICES = (
    _TENANT,
    _need("model", _TEXT, "Model version, as served"),
    _need("valid_from", _TIME, "From when the price holds"),
    _need("recorded_at", _TIME, "When it was written down; the latest holds"),
    _need("currency", _TEXT, "Currency of the three prices"),
    _need("input_per_million", _REAL, "Price of a million input tokens"),
    _may("cached_input_per_million", _REAL, "Of cached ones; null: as input"),
    _need("output_per_million", _REAL, "Price of a million output tokens"),
)

CONTENT_TABLES: dict[str, tuple[Column, ...]] = {
    "messages": _MESSAGES,
    "harnesses": _HARNESSES,
    "tokens": _TOKENS,
    "steps": _STEPS,
    "links": _LINKS,
    "corrections": _CORRECTIONS,
    "signals": _SIGNALS,
    "governance": _GOVERNANCE,
    "quarantine": _QUARANTINE,
    "exchanges": _EXCHANGES,
}
"""Tables of a governed batch; their columns are those of the record dataclasses."""

REGISTRY_TABLES: dict[str, tuple[Column, ...]] = {
    "consents": _CONSENTS,
    "erasures": _ERASURES,
    "substrates": _SUBSTRATES,
    "substrate_items": _SUBSTRATE_ITEMS,
    "runs": _RUNS,
    "models": _MODELS,
    "credits": _CREDITS,
    "prices": _PRICES,
}
"""Tables that rooms append to row by row."""
