"""Fixed words: what may be stored as it is because no client can hide anything in it."""

import re
from functools import cache
from mimetypes import MimeTypes

FINISH_REASONS = frozenset(
    {
        "stop", "length", "tool_calls", "function_call", "content_filter", "end_turn", "max_tokens",
        "stop_sequence", "tool_use", "pause_turn", "refusal", "completed", "incomplete", "failed",
        "cancelled", "error", "max_output_tokens", "model_context_window_exceeded",
        # Gemini's
        "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST",
        "PROHIBITED_CONTENT", "SPII", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS", "IMAGE_SAFETY", "requires_action", "budget_exceeded",
        # Bedrock's, with Titan's
        "guardrail_intervened", "content_filtered", "FINISH", "LENGTH", "CONTENT_FILTERED",
        # Ollama's
        "load", "unload",
    }
)  # fmt: skip

ROLES = frozenset(
    {
        "system", "developer", "user", "assistant", "tool", "function", "model", "human", "ai", "bot",
        "ipython", "environment", "observation", "context", "critic", "data", "root", "call",
    }
)  # fmt: skip
"""Roles of messages that dialects and chat templates know."""

_MORE_MEDIA = """
    image/* audio/* video/* text/* application/* font/* model/* application/octet-stream
    image/jpg image/webp image/heic image/heif image/avif image/gif image/bmp image/tiff
    audio/wav audio/mp3 audio/mpeg audio/flac audio/ogg audio/opus audio/aac audio/m4a audio/aiff audio/webm
    audio/pcm audio/pcm16 audio/l16 audio/g711_ulaw audio/g711_alaw
    video/mp4 video/webm video/mpeg video/quicktime video/mov video/avi video/x-flv video/mkv video/3gpp
    document/pdf document/csv document/doc document/docx document/xls document/xlsx document/html
    document/txt document/md document/*
    text/markdown text/csv application/yaml application/zip application/gzip
    """
_KINDS_OF_MEDIA = frozenset(
    {"image", "audio", "video", "text", "application", "document", "font", "model"}
)


@cache
def _media_types() -> frozenset[str]:
    known = MimeTypes(filenames=())
    listed = (kind for each in known.types_map for kind in each.values())
    return frozenset([*listed, *_MORE_MEDIA.split()])


_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.:/-]{0,79}")
_OPAQUE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")
_DRAWN_ID = re.compile(
    r"(?:call|toolu|srvtoolu|fc|msg|resp|chatcmpl|cmpl|gen)[-_](?!\w*\d{9})[A-Za-z0-9]{20,64}"
)


def finish_reason(value: str | None) -> str | None:
    """Return a finish reason that providers document, ``other`` for anything else."""
    return value if value is None or value in FINISH_REASONS else "other"


def role(value: str) -> str:
    """Return a role that is known, ``other`` for anything else."""
    return value if value in ROLES else "other"


def media_type(value: str) -> str:
    """Return a media type that is known, without parameters; else no more of it than its kind."""
    plain = value.partition(";")[0].strip().lower()
    if plain in _media_types():
        return plain
    kind = plain.partition("/")[0]
    return f"{kind}/*" if kind in _KINDS_OF_MEDIA else "application/octet-stream"


def reason_word(value: str | None) -> str:
    """Return a reason that another room gave, or ``unknown`` when it is not a plain word."""
    text = (value or "").strip().replace(" ", "-")
    return text if _WORD.fullmatch(text) else "unknown"


def looks_like_an_id(value: str) -> bool:
    """Return whether a value has the shape of an identifier; prose, mail and escapes have not."""
    return _OPAQUE_ID.fullmatch(value) is not None


def is_drawn_id(value: str) -> bool:
    """Return whether a value is an id as providers draw them: their prefix, then letters and digits.

    Nine digits in a row may be a number of somebody; such an id is none.
    """
    return _DRAWN_ID.fullmatch(value) is not None
