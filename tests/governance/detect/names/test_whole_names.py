"""What was found of a name in part goes whole, and no word beside it that is none of it."""

import pytest

from governance.detect.finding import Finding, Unit
from governance.detect.names.whole_names import WholeNames
from governance.detect.normalized_text import view_of


def whole(text: str, part: str) -> str:
    start = text.index(part)
    known = [Finding("PERSON", start, start + len(part), 0.6, "some")]
    [found] = WholeNames().find([Unit(view_of(text))], [known])
    return text[found[0].start : found[0].end] if found else part


@pytest.mark.parametrize(
    ("text", "part", "name"),
    [
        ("gruß heike nottebohm", "heike", "heike nottebohm"), ("owner: Carl-Gustaf von Essen", "Carl-Gustaf von", "Carl-Gustaf von Essen"),
        ("with Dirk van den Oever today", "Dirk", "Dirk van den Oever"), ("NEVEM HARMATI ANNA.", "ANNA", "HARMATI ANNA"),
        ("?navn=Ragnhild+Tveitdal&x", "Tveitdal", "Ragnhild+Tveitdal"), ("?navn=Ragnhild+Tveitdal&x", "Ragnhild", "Ragnhild+Tveitdal"),
    ],
)  # fmt: skip
def test_a_name_grows_to_its_whole(text: str, part: str, name: str) -> None:
    assert whole(text, part) == name


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ask heike tomorrow", "heike"), ("heike nottebohm@example.org", "heike"), ("with Dirk and Monday", "Dirk"), ("Anna from Berlin", "Anna"),
        ("CALL ANNA", "ANNA"), ("anna is here", "anna"), ("anna kubernetes", "anna"), ("a+b=Anna", "Anna"),
    ],
)  # fmt: skip
def test_what_stands_beside_a_name_stays(text: str, part: str) -> None:
    assert whole(text, part) == part
