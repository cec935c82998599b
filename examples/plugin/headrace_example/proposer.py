"""A proposer of a house style: names the words that the shop's people use for its goods."""

from collections.abc import Iterator

from evolve.proposers.proposer import ArtifactDraft, ProposalBounds, TenantEvidence
from train.inspection.evidence import people_of


class HouseWords:
    """Proposes to say lamp where enough people do."""

    name = "house-words"
    surface = "harness"

    def propose(self, evidence: TenantEvidence, bounds: ProposalBounds) -> Iterator[ArtifactDraft]:
        """Yield one edit of the system prompt."""
        said = [
            (session, turn.step_id)
            for session in evidence.sessions
            for turn in session.turns
            if turn.speaker == "person" and "lamp" in turn.text
        ]
        if said and people_of(session for session, _ in said) >= bounds.people:
            content = {"harness": {"append": "Say lamp, never luminaire."}}
            steps = sorted(step for _, step in said)
            yield ArtifactDraft("house-words", "What people call the goods.", content, tuple(steps))


PROPOSER = HouseWords()
