"""OpenAI embeddings and moderations: models that answer without words; ledger only."""

from dataclasses import replace

from trajectory.call import Call, CallKind
from trajectory.canonical import JsonObject
from trajectory.dialects.hints import openai_hints
from trajectory.dialects.openai_chat.read import azure_fields, openai_fields
from trajectory.dialects.reader import DialectOutput, model_call, posted_to
from trajectory.dialects.response import read_response
from trajectory.dialects.wire import objects, request_json
from trajectory.exchange import Exchange


def read_inputs(dialect: str, exchange: Exchange) -> Call:
    """Return names, counts and errors of a call whose content is not kept."""
    request = request_json(exchange)
    response = read_response(exchange, lambda _: None)
    value = response.value or {}
    given = request.get("input")
    ext: JsonObject = {
        "inputs": len(given) if isinstance(given, list) else 1,
        **azure_fields(exchange),
    }
    if isinstance(dimensions := request.get("dimensions"), int):
        ext["dimensions"] = dimensions
    results = objects(value.get("results"))
    if results:
        ext["flagged"] = sum(result.get("flagged") is True for result in results)
    call = model_call(dialect, exchange, response, ext=ext, rest={}, hints=openai_hints(request))
    return replace(openai_fields(call, request, value), kind=CallKind.CONTROL)


class OpenAIEmbeddings:
    """``POST …/embeddings``."""

    name = "openai.embeddings"
    yields = DialectOutput(
        "`POST …/embeddings` (OpenAI, Azure OpenAI, vLLM, Ollama's compatible one)",
        CallKind.CONTROL,
        usage=True,
        identity="`user`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return posted_to(exchange, "/embeddings")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        return read_inputs(self.name, exchange)


class OpenAIModerations:
    """``POST …/moderations``."""

    name = "openai.moderations"
    yields = DialectOutput("`POST …/moderations`", CallKind.CONTROL)

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return posted_to(exchange, "/moderations")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        return read_inputs(self.name, exchange)
