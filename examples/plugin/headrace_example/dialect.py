"""The dialect of an in-house API: ``POST /v1/complete`` takes a prompt and gives a text."""

from dataclasses import replace

from trajectory.call import Call, CallKind
from trajectory.dialects.reader import DialectOutput, assistant, model_call, posted_to
from trajectory.dialects.response import read_response
from trajectory.dialects.wire import as_text, request_json, without
from trajectory.exchange import Exchange
from trajectory.message import Message, TextPart


class ShopComplete:
    """``{"model": …, "prompt": …}`` and ``{"text": …}``; answers are not streamed."""

    name = "shop.complete"
    yields = DialectOutput("`POST /v1/complete`", CallKind.MODEL, text=True)

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return posted_to(exchange, "/v1/complete")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; what is no JSON raises, and the call is kept as opaque."""
        request = request_json(exchange)
        response = read_response(exchange, lambda _: {})
        value = response.value or {}
        call = model_call(
            self.name,
            exchange,
            response,
            ext=without(request, frozenset({"model", "prompt"})),
            rest=without(value, frozenset({"text"})),
        )
        prompt, text = as_text(request.get("prompt")), as_text(value.get("text"))
        return replace(
            call,
            model_requested=as_text(request.get("model")),
            context=(Message("user", (TextPart(prompt or ""),)),),
            output=assistant([TextPart(text)] if text else []),
            finish_reason="stop" if text else None,
        )


DIALECT = ShopComplete()
