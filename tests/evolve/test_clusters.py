"""Clusters: the exact test and the step-up procedure against SciPy and ville, and who is to blame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from evolve.clusters import Grouped, Whole, adjusted, find_clusters, fisher
from evolve.detectors import Counted
from evolve.policy import ClusterTests

SPEC = ClusterTests()
CELLS = st.integers(0, 40)
P_VALUES = st.lists(st.floats(1e-9, 1), min_size=1, max_size=20)


@given(a=CELLS, b=CELLS, c=CELLS, d=CELLS)
def test_fisher_is_that_of_scipy(a: int, b: int, c: int, d: int) -> None:
    expected = fisher_exact([[a, b], [c, d]], alternative="greater").pvalue
    assert fisher(a, b, c, d) == pytest.approx(expected, rel=1e-7, abs=1e-12)


@given(p_values=P_VALUES, level=st.sampled_from([0.01, 0.05, 0.2]))
def test_benjamini_and_hochberg_as_ville_has_it(p_values: list[float], level: float) -> None:
    from ville import evalues

    ours = [q <= level for q in adjusted(p_values)]
    assert ours == list(evalues.bh(p_values, level))


def grouped(value: str, dimension: str = "tenant", **changes: object) -> Grouped:
    given = {
        "before": Counted(2000, 200), "since": Counted(200, 20), "tenants": 1, "first_night": 0,
    }  # fmt: skip
    return Grouped(dimension, value, **{**given, **changes})  # type: ignore[arg-type]


WHOLE = Whole(Counted(8000, 800), Counted(800, 160), start=38)


def test_the_tenant_whose_sessions_fail_is_the_cause() -> None:
    others = [grouped(name) for name in ("b", "c", "d")]
    found = find_clusters([*others, grouped("a", since=Counted(200, 100))], WHOLE, SPEC)
    assert (found[0].value, found[0].is_cause) == ("a", True)
    assert not any(one.is_cause for one in found[1:])
    assert found[0].share == pytest.approx(1.0)
    assert found[0].lift == pytest.approx(0.5 / 0.1)


def test_what_always_failed_more_is_no_cause() -> None:
    """A tenant that is as bad as ever has not made things worse."""
    bad = grouped("old", before=Counted(2000, 1000), since=Counted(200, 100))
    whole = Whole(Counted(8000, 1600), Counted(800, 240), start=38)
    assert not find_clusters([bad], whole, SPEC)[0].is_cause


def test_what_everything_shares_is_no_cause() -> None:
    """The one model that serves all sessions fails as often as the rest, which is nothing."""
    everything = grouped("shop/prod", "workload", before=WHOLE.before, since=WHOLE.since)
    assert not find_clusters([everything], WHOLE, SPEC)[0].is_cause


def test_a_version_that_took_over_is_compared_with_those_before() -> None:
    took_over = grouped(
        "agent@2", "harness_version", before=Counted(0, 0), since=WHOLE.since, first_night=37
    )
    (found,) = find_clusters([took_over], WHOLE, SPEC)
    assert found.is_cause
    assert found.is_new


def test_an_old_version_is_not_new() -> None:
    old = grouped("agent@1", "harness_version", first_night=0)
    assert not find_clusters([old], WHOLE, SPEC)[0].is_new


def test_few_events_are_not_tested() -> None:
    assert find_clusters([grouped("rare", since=Counted(4, 4))], WHOLE, SPEC) == ()
