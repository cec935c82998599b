"""The events of ``converse-stream``, joined into the shape of ``converse``."""

from trajectory.canonical import JsonObject
from trajectory.dialects.blocks import finished_input
from trajectory.dialects.wire import as_integer, as_list, as_object, as_text


def assemble_events(events: list[JsonObject]) -> JsonObject | None:
    """Return the response that ``events`` make; None when it never started."""
    whole: JsonObject = {}
    blocks: dict[int, JsonObject] = {}
    message: JsonObject | None = None
    for event in events:
        for kind, payload in event.items():
            value = as_object(payload)
            index = as_integer(value.get("contentBlockIndex")) or 0
            if kind == "messageStart":
                message = {"role": value.get("role")}
            elif kind == "contentBlockStart":
                blocks[index] = dict(as_object(value.get("start")))
            elif kind == "contentBlockDelta":
                _join(blocks.setdefault(index, {}), as_object(value.get("delta")))
            elif kind == "messageStop":
                whole.update(value)
            elif kind == "metadata":
                whole.update({k: v for k, v in value.items() if k != "p"})
    if message is None:
        return None
    message["content"] = [_finished(blocks[index]) for index in sorted(blocks)]
    whole.pop("p", None)
    return {**whole, "output": {"message": message}}


def _join(block: JsonObject, delta: JsonObject) -> None:
    if isinstance(delta.get("text"), str):
        block["text"] = (as_text(block.get("text")) or "") + str(delta["text"])
    if use := as_object(delta.get("toolUse")):
        tool = block["toolUse"] = {**as_object(block.get("toolUse"))}
        piece = as_text(use.get("input")) or ""
        tool["partialInput"] = (as_text(tool.get("partialInput")) or "") + piece
    if reasoning := as_object(delta.get("reasoningContent")):
        told = block["reasoningContent"] = {**as_object(block.get("reasoningContent"))}
        text = told["reasoningText"] = {**as_object(told.get("reasoningText"))}
        for name in ("text", "signature"):
            if isinstance(reasoning.get(name), str):
                text[name] = (as_text(text.get(name)) or "") + str(reasoning[name])
        if isinstance(reasoning.get("redactedContent"), str):
            told["redactedContent"] = reasoning["redactedContent"]
    if "citation" in delta:
        block["citations"] = [*as_list(block.get("citations")), delta["citation"]]
    for name, value in delta.items():
        if name not in ("text", "toolUse", "reasoningContent", "citation"):
            block[name] = value


def _finished(block: JsonObject) -> JsonObject:
    if not isinstance(block.get("toolUse"), dict):
        return block
    return {**block, "toolUse": finished_input(as_object(block["toolUse"]), "partialInput")}


__all__ = ["assemble_events"]
