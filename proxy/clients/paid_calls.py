"""Which requests spend tokens, and what their paths say of how: for keys that have a budget of tokens or money."""

import re
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import unquote

from proxy.routes.paths import climbs, lenient_reading

_FREE = re.compile(
    rb"(?:^|/)(?:(?:files|uploads|batches|vector_stores|containers|conversations|fine_tuning"
    rb"|cachedContents|fileSearchStores|operations|moderations)(?:[/:].*)?"
    rb"|count_tokens|input_tokens|count-tokens(?::\w+)?|tokenize|detokenize|cancel|api/show"
    rb"|realtime/(?:client_secrets|sessions|transcription_sessions)"
    rb"|[^/]+:(?:countTokens|computeTokens))/?$"
)
"""POSTs that no model answers: what a provider keeps, and counts of tokens before they are spent."""
_LATER = re.compile(
    r"/(?:batches|batch/jobs|fine[-_]tuning/jobs|fine-tunes|tuned_?models|(?:custom|tuning)jobs"
    r"|batchpredictionjobs|model-(?:customization|invocation)-jobs?|async-invoke|embed-jobs"
    r"|evals/[^/]+/runs|videos(?:/generations|/[^/]+/remix)?|video/generations/jobs"
    r"|[^/]+:(?:batchgeneratecontent|asyncbatchembedcontent|predictlongrunning))$",
    re.IGNORECASE,
)
"""POSTs that order work which is done and paid later, and of which no answer tells the tokens."""
_KEPT = re.compile(rb"(?:^|/)conversations(?:/[^/:]+(?:/restart)?)?/?$")
"""POSTs that a model answers with Mistral, and that only keep something with OpenAI."""
_LOOK_UP = re.compile(r"/(responses|interactions|chat/deferred-completion)/([^/]+)$", re.IGNORECASE)
"""GETs that bring the answer of a background response or interaction, or of a chat that xAI deferred."""
_GRADED = re.compile(r"/fine_tuning/alpha/graders/run$", re.IGNORECASE)
"""POSTs in which models may grade a sample; they tell what that took."""
_INTERACTION = re.compile(rb"/interactions(?:/[^/]+)?/?$")
_BEDROCK = re.compile(rb"/model/(.+)/(converse|invoke)(?:-stream|-with-response-stream)?/?$")
_GOOGLE = re.compile(rb"/models/([^/:]+):\w+/?$")
_VECTORS = re.compile(
    rb"/(?:embeddings?|embed)/?$|:(?:batch)?embedcontents?/?$|/model/[^/]*embed[^/]*/invoke/?$",
    re.IGNORECASE,
)
_HEARS = re.compile(rb"/audio/(?:transcriptions|translations)/?$")


class PaidCall(NamedTuple):
    """What the path of a request that may spend tokens says of it."""

    looks_up: bool = False
    """Its answer was spent before, unless it ran in the background."""
    keeps: bool = False
    """Look-ups tell it again, and it does not say that it runs in the background: an interaction, or a deferred chat."""
    only_reported: bool = False
    """Nothing is estimated of an answer that comes at once."""
    name: str | None = None
    """The id of what it looks up, where usage is told once for each."""
    model: str | None = None
    """Which model answers, where the path says it."""
    only_path_names: bool = False
    """Its answer names no model: what looks like one is content."""
    makes_vectors: bool = False
    """Its answer is vectors: only the input is tokens."""
    hears: bool = False
    """Its request is speech."""


def costs(method: bytes, path: bytes) -> bool:
    """Tell whether a request is one that a model answers; only such a one spends tokens."""
    bare = path.partition(b"?")[0]
    return method == b"POST" and (_FREE.search(bare) is None or climbs(bare) or _grades(bare))


def is_paid_later(method: bytes, path: bytes) -> bool:
    """Tell whether a request orders work whose cost nobody can count."""
    if method != b"POST":
        return False
    read = lenient_reading(path.partition(b"?")[0])
    return read is None or _LATER.search(normpath(read)) is not None


def paid_call(method: bytes, path: bytes) -> PaidCall | None:
    """Return what a path says of a request that may spend tokens; None where none can be spent."""
    bare = path.partition(b"?")[0]
    if method == b"GET":
        return _look_up(bare)
    if method == b"POST" and (_KEPT.search(bare) is not None or _grades(bare)):
        return PaidCall(only_reported=True)
    if not costs(method, path):
        return None
    bedrock, google = _BEDROCK.search(bare), _GOOGLE.search(bare)
    named = bedrock or google
    return PaidCall(
        keeps=_INTERACTION.search(bare) is not None,
        model=None if named is None else _text(named[1]),
        only_path_names=bedrock is not None and bedrock[2] == b"converse",
        makes_vectors=_VECTORS.search(bare) is not None,
        hears=_HEARS.search(bare) is not None,
    )


def _look_up(bare: bytes) -> PaidCall | None:
    read = lenient_reading(bare)
    if read is None:  # nobody can tell what it asks: what the answer says of itself counts
        return PaidCall(looks_up=True)
    found = _LOOK_UP.search(normpath(read))
    if found is None:
        return None
    keeps = found[1].lower() != "responses"
    return PaidCall(looks_up=True, keeps=keeps, name=found[2] if keeps else None)


def _grades(bare: bytes) -> bool:
    read = lenient_reading(bare)
    return read is not None and _GRADED.search(normpath(read)) is not None


def _text(coded: bytes) -> str:
    return unquote(coded.decode("utf-8", "replace"))
