"""Fixed words: what may be stored as it is because no client can hide anything in it."""

import re

FINISH_REASONS = frozenset(
    {
        "stop", "length", "tool_calls", "function_call", "content_filter", "end_turn", "max_tokens",
        "stop_sequence", "tool_use", "pause_turn", "refusal", "completed", "incomplete", "failed",
        "cancelled", "error", "max_output_tokens", "model_context_window_exceeded",
        # Gemini's
        "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST",
        "PROHIBITED_CONTENT", "SPII", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS", "IMAGE_SAFETY",
        # Bedrock's, with Titan's
        "guardrail_intervened", "content_filtered", "FINISH", "LENGTH", "CONTENT_FILTERED",
        # Ollama's
        "load", "unload",
    }
)  # fmt: skip

SOURCE_KINDS = ("env", "verifier", "human_explicit", "human_implicit", "judge", "rule")

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.:/-]{0,79}")
_OPAQUE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")


def finish_reason(value: str | None) -> str | None:
    """Return a finish reason that providers document, ``other`` for anything else."""
    return value if value is None or value in FINISH_REASONS else "other"


def reason_word(value: str | None) -> str:
    """Return a reason that another room gave, or ``unknown`` when it is not a plain word."""
    text = (value or "").strip().replace(" ", "-")
    return text if _WORD.fullmatch(text) else "unknown"


def looks_like_an_id(value: str) -> bool:
    """Return whether a value has the shape of an identifier; prose, mail and escapes have not."""
    return _OPAQUE_ID.fullmatch(value) is not None
