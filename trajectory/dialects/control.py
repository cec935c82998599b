"""Traffic beside the model calls that carries nothing to learn from: listings, counts, look-ups."""

import re

from trajectory.call import Call, CallKind
from trajectory.dialects.hints import common_hints
from trajectory.dialects.reader import DialectOutput
from trajectory.dialects.wire import header
from trajectory.exchange import Exchange

_CONTROL_GET = re.compile(
    r"/(?:models(?:/.+)?|health[a-z]*|healthz?|ping|version|metrics|responses/[^/]+/input_items"
    r"|chat/completions(?:/[^/]+(?:/messages)?)?"
    r"|api/(?:tags|ps)|\.well-known/[a-z0-9.-]+)$"
)
_CONTROL_POST = re.compile(
    r"/(?:messages/count_tokens|responses/input_tokens|responses/[^/]+/cancel|tokenize|detokenize"
    r"|models/count-tokens:rawPredict"
    r"|v1internal:[a-zA-Z]+|models/[^/:]+:(?:countTokens|batchGenerateContent|embedContent|batchEmbedContents|computeTokens)"
    r"|model/.+/count-tokens|realtime/(?:client_secrets|sessions|transcription_sessions)"
    r"|api/(?:show|embed|embeddings))$"
)
_KEPT = re.compile(
    r"^(?:/upload)?/v\d[a-z0-9]*/(?:files|batches|messages/batches|conversations|interactions"
    r"|vector_stores|uploads|containers|cachedContents|fileSearchStores|operations)"
    r"(?:/[^?]*)?(?::[a-zA-Z]+)?$"
)
"""What providers keep for their clients; none of it is a step."""
_AGENTS = re.compile(r"^/v1/(?:sessions|agents|environments|vaults|skills|memory_stores)(?:/.*)?$")
"""What Anthropic keeps for agents that it runs; their steps are not read here."""


class Control:
    """Known requests that are no steps."""

    name = "control"
    yields = DialectOutput(
        "model listings, token counts, embeddings of Gemini and Ollama, look-ups of answers that"
        " were given at once, files, batches and whatever else a provider keeps (items posted to"
        " OpenAI's conversations and to Anthropic's sessions are not read here),"
        " Realtime secrets, health, `OPTIONS`, `HEAD`",
        CallKind.CONTROL,
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by method and path."""
        path = exchange.request.path.rstrip("/")
        method = exchange.request.method
        if method in ("OPTIONS", "HEAD") or _KEPT.search(path):
            return True
        if _AGENTS.search(path) and header(exchange.request.headers, "anthropic-version"):
            return True
        if method == "GET":
            return bool(_CONTROL_GET.search(path))
        if method == "DELETE":
            return bool(re.search(r"/(?:responses|chat/completions)/[^/]+$", path))
        return method == "POST" and bool(_CONTROL_POST.search(path))

    def read(self, exchange: Exchange) -> Call:
        """Read nothing but the hints."""
        return Call(
            exchange=exchange,
            dialect=self.name,
            kind=CallKind.CONTROL,
            hints=common_hints(exchange),
        )
