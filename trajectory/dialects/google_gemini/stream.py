"""The chunks of a streamed Gemini answer, joined into the shape of an unstreamed one."""

from trajectory.canonical import JsonObject
from trajectory.dialects.openai_chat.stream import extend
from trajectory.dialects.wire import as_integer, as_object, objects


def assemble_chunks(chunks: list[JsonObject]) -> JsonObject | None:
    """Return the response that ``chunks`` make; None when there is no chunk at all."""
    whole: JsonObject = {}
    candidates: dict[int, JsonObject] = {}
    for chunk in chunks:
        whole.update({k: v for k, v in chunk.items() if k != "candidates" and v is not None})
        for piece in objects(chunk.get("candidates")):
            index = as_integer(piece.get("index")) or 0
            _join(candidates.setdefault(index, {}), piece)
    if not whole and not candidates:
        return None
    whole["candidates"] = [candidates[index] for index in sorted(candidates)]
    return whole


def _join(candidate: JsonObject, piece: JsonObject) -> None:
    for name, value in piece.items():
        if value is None:
            continue
        if name == "content":
            content = as_object(candidate.setdefault("content", {}))
            _join_content(content, as_object(value))
        elif name == "logprobsResult":
            result = as_object(candidate.setdefault(name, {}))
            for kind, items in as_object(value).items():
                if isinstance(items, list):
                    extend(result, kind, items)
        else:
            candidate[name] = value


def _join_content(content: JsonObject, piece: JsonObject) -> None:
    content.update({k: v for k, v in piece.items() if k != "parts" and v is not None})
    extend(content, "parts", [*objects(piece.get("parts"))])


__all__ = ["assemble_chunks"]
