"""Keys that say what their values are: one pattern asks first, and changes nothing of what is told."""

from hypothesis import example, given
from hypothesis import strategies as st

from governance.detect.keys import KEYS, entities_told, tells_anything
from governance.detect.names.key_names import key_words

_WORDS = (
    "password", "api_key", "token", "geburtstag", "date_of_birth", "mrn", "fall_nr", "passport", "cnh", "imei",
    "account_number", "phone", "携帯", "身分", "card_number", "mac", "user_id", "zip", "stra\u00dfe", "city", "order",
    "id", "tool_call", "no", "face_id", "fingerprint_hash", "template", "f(Aaa", ",Baa", "x", "", "_", "Client", "Secret",
)  # fmt: skip
_KEY = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3).flatmap(
    lambda words: st.sampled_from(("_", "-", " ", "")).map(lambda mark: mark.join(words))
)


@given(st.lists(st.one_of(_KEY, st.text(max_size=12)), max_size=4).map(tuple))
@example(("fingerprint_hash", "left"))
@example(("tool_call_id",))
@example(("clientSecret",))
@example(())
def test_one_pattern_first_tells_what_each_pattern_by_itself_tells(keys: tuple[str, ...]) -> None:
    words = key_words(keys)
    plain = {key.entity for key in KEYS if key.speaks(words)}
    assert entities_told(keys) == plain
    assert tells_anything(keys) == bool(plain)
