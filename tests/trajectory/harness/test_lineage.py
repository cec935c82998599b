"""An agent keeps its name over its versions; versions count by first sight and stay."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

from trajectory.canonical import content_hash
from trajectory.harness.lineage import HarnessVersion, Lineages, Sighting, Sketch
from trajectory.harness.normal_form import normal_form

T0 = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY = b"k" * 32
RULES = "Be polite. Never promise what the shop cannot keep. Answer in one short paragraph. "
REFUND = "You are the refund agent for Acme. " + RULES + "Ask for the number of the order first."
TRIAGE = "You are the triage agent for Acme. " + RULES + "Hand over to whoever knows more."
TITLE = "Write a title of at most five words for the conversation below. No quotation marks."


def seen(
    prompt: str,
    minute: int = 0,
    *,
    agent: str | None = None,
    app: str = "shop",
    tenant: str = "acme",
) -> Sighting:
    form = normal_form(prompt, "[]")
    form_id = content_hash([tenant, form.value])
    return Sighting(
        tenant, app, agent, form_id, f"h-{prompt}", T0 + timedelta(minutes=minute),
        lambda: Sketch.of(form, KEY),
    )  # fmt: skip


def numbers(versions: list[HarnessVersion]) -> list[tuple[str, int]]:
    return [(one.harness_name, one.harness_version) for one in versions]


def test_an_edited_prompt_is_the_next_version_of_the_same_name() -> None:
    edits = [REFUND, REFUND.replace("polite", "brief"), REFUND + " Say thank you.", REFUND]
    found = Lineages().number([seen(text, at) for at, text in enumerate(edits)])
    name = found[0].harness_name
    assert numbers(found) == [(name, 1), (name, 2), (name, 3)]
    assert name.startswith("agent-")


def test_agents_that_share_most_of_their_text_are_told_by_who_they_say_they_are() -> None:
    found = Lineages().number([seen(REFUND), seen(TRIAGE, 1), seen(TITLE, 2)])
    assert [one.harness_version for one in found] == [1, 1, 1]
    assert len({one.harness_name for one in found}) == 3


def test_an_agent_that_says_its_name_keeps_it_whatever_its_prompt_says() -> None:
    found = Lineages().number([
        seen(REFUND, 0, agent="clerk"), seen(TITLE, 1, agent="clerk"), seen(REFUND, 2),
    ])  # fmt: skip
    assert numbers(found)[:2] == [("clerk", 1), ("clerk", 2)]
    assert found[2].harness_name != "clerk", "nobody said here that this is the clerk"


def test_tenants_and_applications_count_apart() -> None:
    found = Lineages().number([
        seen(REFUND), seen(REFUND, 1, app="desk"), seen(REFUND, 2, tenant="other"),
        seen(REFUND + " Smile.", 3, app="desk"),
    ])  # fmt: skip
    assert [one.harness_version for one in found] == [1, 1, 1, 2]


def test_numbers_are_given_in_order_of_time_and_never_again() -> None:
    texts = [REFUND, REFUND.replace("polite", "brief"), REFUND + " Say thank you."]
    sightings = [seen(text, at) for at, text in enumerate(texts)]
    for order in permutations(sightings):
        assert [one.form_id for one in Lineages().number(order)] == [s.form_id for s in sightings]
    late = Lineages(Lineages().number(sightings[1:]))
    assert [one.harness_version for one in late.number(sightings)] == [3], "stored numbers stay"
    assert late.number(sightings) == []


def test_versions_that_are_read_again_in_any_order_go_on_alike() -> None:
    first = Lineages().number(
        [seen(REFUND + f" Rule {word}.", at) for at, word in enumerate("abcdef")]
    )
    more = [seen(REFUND + " Rule g.", 10), seen(TRIAGE, 11)]
    expected = Lineages(first).number(more)
    assert all(
        Lineages(order).number(more) == expected for order in (first[::-1], first[3:] + first[:3])
    )
    assert expected[0].harness_version == 7
