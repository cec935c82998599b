"""Comments of feedback: whether what a person says may be stored.

Whose words they are shows only by the conversation that the feedback is about. So a comment stays out where no stored
conversation is known, and where its person, or anybody whom that conversation names, left it nothing to be used for.
What an approver says mostly comes before the call that they let go on, and is none of its person's words.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from governance.consent import ConsentLookup, ConsentRequest, judge_consent, withheld_in
from governance.passes.rows import BatchRows
from governance.policy.consent import ConsentSpec, Purpose
from governance.policy.selector import Facts
from governance.stored_content import KnownContent
from trajectory.exchange import APPROVERS, ASKED_BY, Feedback

type Place = tuple[str, str]
"""Tenant, and the stored name of what feedback is about."""


class CommentConsent:
    """Asks for the comments of one batch."""

    def __init__(
        self,
        spec: ConsentSpec,
        consents: ConsentLookup,
        known: KnownContent,
        places: Mapping[Place, Collection[str]],
        rows: BatchRows,
    ) -> None:
        """Judge by ``spec``.

        Args:
            spec: the policy.
            consents: the registry of grants and withdrawals.
            known: what the lake already holds.
            places: the stored trajectories that the commented feedback is about.
            rows: of the batch's calls.
        """
        self._spec = spec
        self._consents = consents
        self._places = places
        self._people: dict[Place, dict[str, None]] = defaultdict(dict)
        """Keyed pseudonyms of everybody whom a trajectory concerns."""
        self._withheld: dict[Place, set[Purpose]] = defaultdict(set)
        """What a trajectory lost for what comes after."""
        asked: dict[str, set[str]] = defaultdict(set)
        for (tenant, _), trajectories in places.items():
            asked[tenant].update(trajectories)
        for tenant, names in asked.items():
            for row in (*known.decisions_in(tenant, names), *rows.governance):
                if row.tenant_id == tenant and row.trajectory_id in names:
                    place = (tenant, row.trajectory_id)
                    self._people[place] |= dict.fromkeys(row.subjects)
                    self._withheld[place] |= withheld_in(row.reasons)
            for name, purposes in known.withheld(tenant, names).items():
                self._withheld[tenant, name].update(map(Purpose, purposes))

    def may_be_kept(self, feedback: Feedback, place: Place, facts: Facts) -> bool:
        """Whether a comment may be stored for any purpose."""
        trajectories = sorted(self._places.get(place, ()))
        if not trajectories:
            return ASKED_BY in feedback.body and feedback.body.get("source") == APPROVERS
        about = [(place[0], name) for name in trajectories]
        people = _joined(self._people.get(one, {}) for one in about)
        request = ConsentRequest(
            facts,
            feedback.client.purposes,
            headers=(),
            end_user=None,
            subjects=tuple(people),
            captured_at=feedback.received_at,
            withheld=frozenset[Purpose]().union(*(self._withheld.get(one, ()) for one in about)),
            trajectories=tuple(trajectories),
        )
        return bool(judge_consent(self._spec, self._consents, request).purposes)


def _joined(people: Iterable[Iterable[str]]) -> dict[str, None]:
    return dict.fromkeys(one for some in people for one in some)
