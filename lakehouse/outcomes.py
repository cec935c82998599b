"""What several views mean by a trajectory's model and by its success, written once."""

MODEL_SERVED = (
    "arg_max(model_served, started_at) FILTER (kind = 'model' AND role_in_graph = 'agent')"
)
"""The model of a trajectory: what served its agent last."""

SUCCESS_NAMED = (
    "max(value) FILTER (name = 'success') AS success, "
    "max(lower(label)) FILTER (name = 'success') AS label"
)
"""What the signals in force say of success, by value and by label."""

SUCCESS = """coalesce(r.success >= 0.5, r.label IN ('true', 'yes', 'pass', 'success'),
                CASE WHEN r.label IS NOT NULL THEN false END)"""
"""Whether that is a success; null when nobody judged."""
