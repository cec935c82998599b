"""What stands before a name: cues that end right where the name begins.

They run on RE2 anchored at the end, which reads backwards from there and stops early.
"""

import re
from string import ascii_letters

from governance.detect.matcher import compiled

_LOOK_BACK = 90
CUES = (
    r"\b(?:my|his|her|their|whose|the|real|full|first|last|patient|customer)\s+(?:full |first |last )?name(?: is|'s| was|:)\s+(?:is )?"
    r"|\b(?:i am|i'm|im|this is|it is|it's|name is|named|called|call me|known as|myself|speaking with|talking to|talked to|spoke (?:with|to))\s+"
    r"|\b(?:mr|mrs|ms|mx|miss|dr|prof|professor|doctor|sir|madam|madame|mme|mlle|herr|frau|señor|señora|señorita|sig|signora?|rev|hon|capt|sgt|lt|col|gen|nurse|officer|judge|senator)\b\.?\s+"
    r"|\b(?:dear|hi|hello|hey|hallo|hola|bonjour|ciao|good (?:morning|afternoon|evening)|thanks|thank you|cheers|welcome)[,!]?\s+"
    r"|\b(?:deliver(?:ed|y)?|ship(?:ped|ping)?|send|sent|goes?|forward(?:ed)?|address(?:ed)?|assign(?:ed)?|belongs?|mail(?:ed)?|bill(?:ed)?|charge[ds]?|invoice[ds]?|report(?:ed|s)?|transfer(?:red)?|escalate[ds]?|refund(?:ed)?|pay|paid|hand(?:ed)?|issued?|given?|spoke|talked?|speak|refer(?:red)?|introduce[ds]?|contact|attention|regards)(?: (?:it|this|them|the \w+|an? \w+|back|over|out))? to:?\s+"
    r"|\b(?:on behalf of|signed(?: off)? by|written by|sent by|made by|approved by|created by|reported by|requested by|reviewed by|ordered by|placed by|owned by|prepared by|submitted by|authored by|assigned to|care of|c/o|attn\.?:?|attention:?|in the name of|name of|ask for|meet with|meeting with|met with|met|contact|ask|tell|asked|told|email|e-mail|call|phone|text|message|cc|ping|remind|invite|invited|signer|husband|wife|son|daughter|brother|sister|mother|father|boss|colleague|manager|friend|assistant|secretary|partner|neighbou?r|client|customer|patient|employee|user|driver|tenant|account (?:holder|manager|owner)|card ?holder|beneficiary|recipient|passenger|student|teacher|attendee|candidate)\s+"
    r"|(?:^|[\n\r;|,({\[>\"'&?]|\s{2}|\t)\s*(?:[-*#/]+\s*)?[\"']?(?:[A-Za-z]+[ _\-])?(?:customer|client|contact(?: person)?|name|full[ _]?name|first[ _]?name|last[ _]?name|surname|family name|given name|from|to|cc|bcc|attn|attention|author|signed|patient|employee|recipient|sender|passenger|card ?holder|account holder|holder|owner|assignee|reviewer|reviewed-by|reported-by|reporter|signed-off-by|co-authored-by|tested-by|acked-by|user|manager|buyer|seller|student|teacher|doctor|physician|nurse|agent|beneficiary|tenant|landlord|applicant|candidate|guest|host|member|participants?|attendees?|speaker|contact name|bill to|ship to|sold to|deliver to|emergency contact|next of kin|representative|operator|admin|maintainer|committer|caller|subscriber|requester|requested by|approved by|prepared by|submitted by|created by|config for|profile for|settings for|record for|account for|report for|data for|information for|details for|logs? for)[\"']?\s*(?:[:=]|=>|\t)\s*[\"']?(?:mr\.?|mrs\.?|ms\.?|dr\.?)?\s*"
)
_STRONG_CUES = r"name(?: is|'s| was|:)\s+(?:is )?|i am\s+|i'm\s+|call me\s+|\b(?:mr|mrs|ms|dr|prof)\b\.?\s+|[:=]\s*[\"']?|\bdear\s+|signed by\s+|on behalf of\s+"
ANY = compiled(rf"(?:{CUES})\z")
_STRONG = compiled(rf"(?:{_STRONG_CUES})\z")

_SHORTEST = 3
"""How many characters a cue has at least: "hi ", "to:"."""
_LAST = b" \t\n\r\f\v:=>\"'."
"""What a cue ends with."""
_LETTERS = ascii_letters.encode()
_LAST_WORDS = frozenset(re.findall(rb"[a-z]+", CUES.encode("latin-1"))) | frozenset(
    b"neighbour neighbor cardholder fullname firstname lastname signor participant attendee".split()
)
"""What stands before that, among other words of cues: each that is written in one piece, and the others."""

NONE, PLAIN, STRONG = 0, 1, 2


def cue(data: bytes, start: int) -> int:
    """Return how strongly what stands before ``start`` announces a name."""
    if start < _SHORTEST or data[start - 1] not in _LAST:
        return NONE
    before = data[max(0, start - _LOOK_BACK) : start]
    words = before.rstrip(_LAST + b",!")
    if words[len(words.rstrip(_LETTERS)) :].lower() not in _LAST_WORDS:
        return NONE
    if ANY.search(before) is None:
        return NONE
    return STRONG if _STRONG.search(before) is not None else PLAIN
