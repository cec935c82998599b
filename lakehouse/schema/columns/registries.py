"""What rooms write down row by row: consents and erasures, training, credit and prices."""

from lakehouse.schema.columns.column import (
    FLAG,
    INT,
    NUMBERS,
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

CONSENTS = (
    TENANT,
    content("subject", TEXT, "Keyed pseudonym; * stands for everybody of the tenant"),
    need("purpose", TEXT, "Purpose"),
    need("granted", FLAG, "False when consent was withdrawn"),
    need("source", TEXT, "Who recorded it"),
    need("recorded_at", TIME, "When; the latest row of subject and purpose holds"),
    may("reference", TEXT, "Ticket or document"),
)

ERASURES = (
    TENANT,
    need("erasure_id", TEXT, "Identity of the erasure"),
    content("subject", TEXT, "Keyed pseudonym"),
    need("status", TEXT, "requested, begun (rows go, if there are any) or done"),
    need("recorded_at", TIME, "When this state was reached"),
    may("reference", TEXT, "Ticket or document"),
    content(
        "report",
        TEXT,
        "JSON: rows removed per table; trajectories, substrates, runs, models concerned",
    ),
)

SUBSTRATES = (
    need("name", TEXT, "Name of the selection"),
    need("version", TEXT, "Version of the selection"),
    need("built_at", TIME, "When it was built"),
    need("recorded_at", TIME, "When this row was written; the latest one holds"),
    need("items", INT, "How many items it holds"),
    content("manifest", TEXT, "JSON: table versions, policy hash, query, counts, quality"),
    need("content_hash", TEXT, "Hash of the item list"),
    need("stale", FLAG, "True when an item was erased or lost its consent"),
    may("stale_reason", TEXT, "Why it is stale"),
)

SUBSTRATE_ITEMS = (
    TENANT,
    need("substrate", TEXT, "Name of the substrate"),
    need("version", TEXT, "Version of the substrate"),
    need("item_id", TEXT, "Identity of the item"),
    TRAJECTORY,
    STEP,
    need("split", TEXT, "train, validation or test"),
    need("weight", REAL, "Weight in training"),
    may("reward", REAL, "Reward at the time of building"),
    may("group_id", TEXT, "Task or group that several attempts share"),
    may("exchange_id", TEXT, "The exchange in the ledger"),
    may("policy_hash", TEXT, "Policy that allowed the item"),
)

RUNS = (
    need("run_id", TEXT, "Identity of the run"),
    need("recorded_at", TIME, "When this row was written; the latest one holds"),
    need("recipe", TEXT, "Recipe of the ladder"),
    need("substrate", TEXT, "Name of the substrate"),
    need("substrate_version", TEXT, "Version of the substrate"),
    need("base_model", TEXT, "What training began with"),
    need("started_at", TIME, "When the run began"),
    may("ended_at", TIME, "When the run ended"),
    need("status", TEXT, "running, done, failed or interrupted"),
    need("seed", INT, "Seed"),
    content("metrics", TEXT, "JSON of the metrics"),
    content("manifest", TEXT, "JSON: versions, settings, cost, environment"),
)

MODELS = (
    need("name", TEXT, "Name of the model"),
    need("version", TEXT, "Version of the model"),
    need("recorded_at", TIME, "When this row was written; the latest one holds"),
    may("run_id", TEXT, "Run that trained it"),
    need("path", TEXT, "Where the weights are, relative to the home folder"),
    may("base", TEXT, "name@version or path that training began with"),
    need("status", TEXT, "candidate, live, retired or refused"),
    content("gate", TEXT, "JSON: what the gate measured and said"),
    may("weights_hash", TEXT, "Hash of the weights"),
    may("reason", TEXT, "Why the status changed"),
    may("actor", TEXT, "Who changed the status"),
)

ARTIFACTS = (
    need("name", TEXT, "Name of the artefact"),
    need("version", TEXT, "Version of the artefact"),
    need("recorded_at", TIME, "When this row was written; the latest one holds"),
    need("surface", TEXT, "memory, skill, harness or tools"),
    may("for_tenant", TEXT, "Whose calls it is for; null: everybody's"),
    need("path", TEXT, "Where it is, relative to the home folder"),
    need("status", TEXT, "candidate, refused (by its inspection), live, canary or retired"),
    need("content_hash", TEXT, "Hash of its content when it was registered"),
    may("decision_id", TEXT, "The decision that it answers"),
    need("proposer", TEXT, "Who or what proposed it"),
    need("licence", TEXT, "Under which its text may be used"),
    need("evidence", TEXTS, "Ids of the steps that it was drawn from"),
    need("purposes", TEXTS, "Purposes that these steps had to allow"),
    may("reason", TEXT, "Why the status changed"),
    may("actor", TEXT, "Who changed the status"),
)

CREDITS = (
    TENANT,
    TRAJECTORY,
    STEP,
    need("recorded_at", TIME, "When it was computed; the latest row holds"),
    need("computation_id", TEXT, "Rows that were computed together"),
    need("algorithm", TEXT, "Name of the algorithm"),
    need("algorithm_version", TEXT, "Version of its definition"),
    need("parameters", TEXT, "Canonical JSON of its parameters"),
    need("weights_hash", TEXT, "Hash of the signal weights that made the reward"),
    may("substrate", TEXT, "name@version of the substrate that the weights stand in"),
    need("group_id", TEXT, "Task that the attempts share; the trajectory when it has none"),
    need("position", INT, "Place of the step among the trajectory's decisions, from 0"),
    need("decisions", INT, "Decisions of the trajectory"),
    need("reward", REAL, "Reward of the trajectory"),
    need("step_reward", REAL, "Share of it that was earned at this step"),
    need("advantage", REAL, "Credit of the step"),
    need("peers", INT, "Attempts or steps that it was compared with; 0 says nothing about better"),
)

PRICES = (
    TENANT,
    need("model", TEXT, "Model version, as served"),
    need("valid_from", TIME, "From when the price holds"),
    need("recorded_at", TIME, "When it was written down; the latest holds"),
    need("currency", TEXT, "Currency of the three prices"),
    need("input_per_million", REAL, "Price of a million input tokens"),
    may("cached_input_per_million", REAL, "Of cached ones; null: as input"),
    need("output_per_million", REAL, "Price of a million output tokens"),
    may("up_to_input_tokens", INT, "The prices are for calls with so many input tokens at most"),
    may(
        "source", TEXT, "name@day of the price table that it comes from; null: a person recorded it"
    ),
)

DECISIONS = (
    need("decision_id", TEXT, "Identity of the decision: a hash of all that it rests on"),
    need("recorded_at", TIME, "When this row was written; the latest one holds"),
    need("policy", TEXT, "Name of the evolution policy"),
    need("policy_hash", TEXT, "Hash of what the policy says"),
    need("as_of", TIME, "End of the last night that was looked at"),
    need("surface", TEXT, "memory, skill, harness, tool_schema, weights, rollback or nothing"),
    may("subject", TEXT, "Dimension and value of the cluster that is the cause"),
    need(
        "status",
        TEXT,
        "nothing, proposed, approved, rejected, or unmeasured: no session told when it was due",
    ),
    need("actor", TEXT, "Who wrote this state"),
    may("reason", TEXT, "Why a person approved or rejected it"),
    may("metric", TEXT, "Share of sessions that it will be scored by"),
    may("at_least", REAL, "What the metric must reach"),
    may("due_at", TIME, "By when"),
    may("measured", REAL, "What the metric was on that day; null before"),
    may("met", FLAG, "Whether it was reached; null before"),
    need(
        "document",
        TEXT,
        "JSON: what it saw, considered, decided and expects; ids and counts, no text",
    ),
)

INTERVENTIONS = (
    need("intervention_id", TEXT, "Identity of the change"),
    need("recorded_at", TIME, "When this row was written; the latest one holds"),
    need("decision_id", TEXT, "The decision that it follows; empty where it follows none"),
    need("surface", TEXT, "What is changed"),
    may(
        "subject",
        TEXT,
        "Dimension and value of the cluster that is the cause; of an artefact its name@version",
    ),
    need("status", TEXT, "begun or ended"),
    need("begun_at", TIME, "When a person approved it, or an artefact's trial began"),
    may("ended_at", TIME, "When its decision was scored, or the trial ended, or it went live"),
    need("actor", TEXT, "Who wrote this state"),
    may("met", FLAG, "Whether it did what was expected; null before"),
)

HARNESS_VERSIONS = (
    TENANT,
    need("app_id", TEXT, "Application of the client key"),
    need("harness_name", TEXT, "The agent's own name, or one of the harness's lineage"),
    need("harness_version", INT, "Number within this name, from 1, by first sight"),
    need("form_id", TEXT, "Keyed hash of the harness without what changes between renderings"),
    need("is_declared", FLAG, "Whether the agent said its name itself"),
    need("harness_id", TEXT, "The harness that was seen first in this form"),
    need("first_seen_at", TIME, "When the first step with this form began"),
    content("smallest", NUMBERS, "Smallest keyed hashes of the words and tools, to find lineages"),
    content("who", NUMBERS, "Keyed hashes of the words by which the prompt says who the agent is"),
)
