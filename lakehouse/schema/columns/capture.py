"""What agents said and did: messages, steps and what belongs to them, as captured and redacted."""

import pyarrow as pa

from lakehouse.schema.columns.column import (
    FLAG,
    INT,
    REAL,
    STEP,
    TENANT,
    TEXT,
    TEXTS,
    TIME,
    TRAJECTORY,
    content,
    may,
    need,
)

TOOL_CALLS = pa.list_(
    pa.struct([("call_id", TEXT), ("name", TEXT), ("arguments", TEXT), ("arguments_valid", FLAG)])
)
TOOL_RESULTS = pa.list_(pa.struct([("call_id", TEXT), ("content", TEXT), ("is_error", FLAG)]))
LINKS_TO = pa.list_(
    pa.struct(
        [
            ("kind", TEXT),
            ("from_step_id", TEXT),
            ("trajectory_id", TEXT),
            ("recorded_at", TIME),
            ("key_source", TEXT),
        ]
    )
)

MESSAGES = (
    TENANT,
    need("message_id", TEXT, "Keyed hash of the redacted message's canonical JSON"),
    need("role", TEXT, "system, developer, user, assistant or tool"),
    content("parts", TEXT, "JSON list of typed parts, redacted"),
    need("characters", INT, "Length of the message's text"),
    need("first_seen_at", TIME, "When this content was first stored"),
    content("name", TEXT, "What the participant called itself, redacted", nullable=True),
    may(
        "content_id",
        TEXT,
        "Hash of what the row holds since a name that was told later went from it; else message_id is",
    ),
)

HARNESSES = (
    TENANT,
    need("harness_id", TEXT, "Hash of the redacted harness"),
    content("system_prompt", TEXT, "System prompt, redacted"),
    content("tools", TEXT, "JSON list of tool definitions"),
    content("sampling", TEXT, "JSON of the sampling defaults"),
    need("first_seen_at", TIME, "When this harness was first stored"),
    content("ext", TEXT, "JSON of fields that the protocol does not know, redacted"),
)

TOKENS = (
    TENANT,
    TRAJECTORY,
    STEP,
    need("started_at", TIME, "When the step began"),
    may("tokenizer_id", TEXT, "Which tokenizer the ids belong to"),
    content("prompt_token_ids", pa.list_(pa.int32()), "Ids of the prompt", nullable=True),
    content("completion_token_ids", pa.list_(pa.int32()), "Ids of the completion"),
    content("logprobs", pa.list_(REAL), "Natural log per completion token", nullable=True),
    content("loss_mask", pa.list_(FLAG), "False where redaction masked a token", nullable=True),
    may("model_served", TEXT, "Model version that sampled the tokens"),
    need("token_fidelity", TEXT, "exact, pseudonymised_inline, span_masked or none"),
)

STEPS = (
    TENANT,
    need("app_id", TEXT, "Application of the client key"),
    need("environment", TEXT, "Environment of the client key"),
    TRAJECTORY,
    STEP,
    need("step_index", INT, "Position along the path from the root, from 0"),
    may("parent_step_id", TEXT, "The step whose conversation this one goes on"),
    need("branch", INT, "0 for the first child of its parent, counting up for forks"),
    need("kind", TEXT, "model or tool"),
    need("role_in_graph", TEXT, "agent, auxiliary, discarded, compaction, queued or shadow"),
    need("key_source", TEXT, "What told the trajectory; prefix and none are inferred"),
    need("exchange_id", TEXT, "The exchange in the ledger"),
    need("route", TEXT, "Configured route of the gateway"),
    need("dialect", TEXT, "Wire dialect"),
    need("started_at", TIME, "When the call began"),
    may("ended_at", TIME, "When the call ended"),
    need("context_keep", INT, "Messages of the parent's conversation that still lead this one"),
    need("context_message_ids", TEXTS, "Messages that are new in this step, in order"),
    may("output_message_id", TEXT, "The assistant's answer"),
    content("tool_calls", TOOL_CALLS, "Tool calls of the output; arguments as redacted JSON"),
    content(
        "tool_results",
        TOOL_RESULTS,
        "Tool results produced, redacted; of those observed the errors' beginnings (messages hold the rest)",
    ),
    may("model_requested", TEXT, "Model that the client asked for"),
    may("model_served", TEXT, "Model version that answered"),
    may("harness_id", TEXT, "The harness around the model"),
    content("sampling", TEXT, "JSON of the sampling parameters as really sent"),
    may("response_id", TEXT, "Id that the model API gave to the client"),
    may("finish_reason", TEXT, "Why generation stopped; null when it was cut off"),
    may("http_status", INT, "HTTP status of the answer"),
    content("error", TEXT, "Error of provider or tool, redacted", nullable=True),
    need("streamed", FLAG, "Whether the answer was streamed"),
    may("retry_of", TEXT, "The failed attempt that this step repeats"),
    may("input_tokens", INT, "Input tokens as reported"),
    may("output_tokens", INT, "Output tokens as reported"),
    may("cached_input_tokens", INT, "Cached input tokens as reported"),
    may("latency_ms", REAL, "Milliseconds from request to end"),
    may("time_to_first_token_ms", REAL, "Milliseconds to the first byte of the answer"),
    may(
        "state_hash",
        TEXT,
        "Hash of the redacted observation that this step acted on, call ids left out",
    ),
    need(
        "capture_level",
        TEXT,
        "tokens: with exact ids; logprobs: only mean_logprob beside the text; text",
    ),
    need("replay_class", TEXT, "deterministic, approximate or none"),
    may("session_hint", TEXT, "Keyed hash of the client's own session name"),
    may("group_id", TEXT, "Task or group that several attempts share"),
    may("agent_role", TEXT, "Who acts: what the agent calls itself, else harness_name"),
    may(
        "harness_name",
        TEXT,
        "The harness whatever its version: the agent's own name, or one of its lineage",
    ),
    may("harness_version", INT, "Its number within this name, by first sight per tenant and app"),
    may(
        "artifacts",
        TEXTS,
        "Artefacts that the gateway added to the request, name@version; null where none were",
    ),
    may("mean_logprob", REAL, "Mean natural log of the probability of the answer's tokens"),
    content("ext", TEXT, "JSON of fields that the protocol does not know, redacted"),
    need("schema_version", INT, "Version of the stored protocol"),
)

LINKS = (
    TENANT,
    need(
        "kind",
        TEXT,
        "prefix, retry, fork, tool_dispatch, subagent_call, subagent_return, auxiliary, compaction, handoff, approval or shadow",
    ),
    need("from_step_id", TEXT, "The earlier step"),
    need("to_step_id", TEXT, "The later step"),
    TRAJECTORY,
    need("recorded_at", TIME, "When the link was seen"),
    need("key_source", TEXT, "What told the link"),
)

CORRECTIONS = (
    TENANT,
    STEP,
    need("trajectory_id", TEXT, "The trajectory that the step belongs to now"),
    need("stored_trajectory_id", TEXT, "The trajectory that it was stored in"),
    need("began", FLAG, "Whether it began the trajectory that it was stored in"),
    need("started_at", TIME, "When the step began"),
    need("recorded_at", TIME, "When the correction was made; the latest row holds"),
    may("parent_step_id", TEXT, "The step whose conversation this one goes on"),
    need("step_index", INT, "Position along the path from the root, from 0"),
    need("branch", INT, "0 for the first child of its parent, counting up for forks"),
    need("role_in_graph", TEXT, "agent, auxiliary, discarded, compaction or queued"),
    need("key_source", TEXT, "What told the trajectory"),
    may("context_keep", INT, "Messages of the parent's conversation; null: all stays as stored"),
    need("context_skip", INT, "Stored new messages that the parent's conversation holds by now"),
    need("results_skip", INT, "Tool results in these messages"),
    may("retry_of", TEXT, "The failed attempt that this step repeats"),
    may("duplicate_of", TEXT, "The step that this one only repeats; it counts no longer"),
    may("session_hint", TEXT, "Keyed hash of the client's own session name"),
    may("group_id", TEXT, "Task or group that several attempts share"),
    may("side_effect", TEXT, "Of a tool step: what it does to the world"),
    may("replay_class", TEXT, "Of a tool step: deterministic, approximate or none"),
    need("links", LINKS_TO, "All links that end at the step"),
)

SIGNALS = (
    TENANT,
    need("signal_id", TEXT, "Identity of the signal; a repeated one counts once"),
    need("target_kind", TEXT, "token_span, step, response, trajectory, session or group"),
    need("target_id", TEXT, "What the signal is about"),
    may("trajectory_id", TEXT, "Trajectory, when it was known at writing"),
    may("step_id", TEXT, "Step, when it was known at writing"),
    need("name", TEXT, "Name of the measure, e.g. success"),
    may("value", REAL, "Number"),
    content("label", TEXT, "Label", nullable=True),
    content("rationale", TEXT, "Reason given, redacted", nullable=True),
    need("source_kind", TEXT, "env, verifier, human_explicit, human_implicit, judge or rule"),
    need("source", TEXT, "Who judged"),
    may("source_version", TEXT, "Version of the judge"),
    may("confidence", REAL, "Confidence of the judge"),
    need("observed_at", TIME, "When the outcome was observed"),
    need("recorded_at", TIME, "When Headrace received it"),
    may("supersedes", TEXT, "signal_id that this one replaces"),
    need("is_gold", FLAG, "Whether the value is a reference"),
    may("span_unit", TEXT, "Of a span: characters of the answer's text, or tokens of the answer"),
    may("span_start", INT, "Of a span: its first one, counted from 0 in the answer as it came"),
    may("span_end", INT, "Of a span: the one behind its last"),
    may("app_id", TEXT, "Application of the client key that gave it"),
    may("environment", TEXT, "Environment of the client key that gave it"),
)
