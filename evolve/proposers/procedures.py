"""Skills: the order of calls in sessions that ended well, where another order ends worse."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from evolve.proposers.proposer import (
    ArtifactDraft,
    ProposalBounds,
    TenantEvidence,
    nameable,
    plain_name,
)
from train.inspection.claims import order_of_work
from train.inspection.evidence import AgentSession, people_of
from trajectory.artifact import ArtifactSurface

_SESSIONS = 3
"""Of one order there are so many that ended well."""
_CALLS = 8
_PHRASES = 5
_WORD = re.compile(r"[^\W\d_]{4,30}")
_YES = ""
"""Stands for a person's yes in an order of calls."""

type Order = tuple[str, ...]


class Procedures:
    """Proposes procedures from the order of successful calls."""

    name = "headrace:procedures"
    surface: ArtifactSurface = "skill"

    def propose(self, evidence: TenantEvidence, bounds: ProposalBounds) -> Iterator[ArtifactDraft]:
        """Yield one procedure for each last call that one order leads to more surely than others."""
        sessions = evidence.sessions
        by_goal: dict[str, list[tuple[Order, AgentSession]]] = defaultdict(list)
        for session in sessions:
            order = _order(session)
            if len({*order} - {_YES}) > 1 and session.success is not None:
                by_goal[order[-1]].append((order, session))
        for goal in sorted(by_goal):
            best = _best(by_goal[goal], bounds.people)
            if best is None or bounds.tool not in (None, *best):
                continue
            alike = _well_ended(by_goal[goal], best)
            own = nameable(alike, _steps)
            phrases = _phrases(own, [one for one in sessions if one not in alike])
            if phrases:
                yield _draft(goal, best, own, phrases)


def _order(session: AgentSession) -> Order:
    """Return the calls that succeeded, each once, with a person's yes where one came before a call."""
    found: list[str] = []
    agreed = False
    for use in order_of_work(session):
        if use is None:
            agreed = True
        elif not use.failed and use.answer is not None and use.name not in found:
            found += [_YES, use.name] if agreed else [use.name]
            agreed = False
    return tuple(found[: 2 * _CALLS])


def _best(seen: Sequence[tuple[Order, AgentSession]], people: int) -> Order | None:
    """Return the order that ends well most often, where all others together end well less often."""
    tried, done = Counter(order for order, _ in seen), Counter(o for o, s in seen if s.success)
    able = [
        order
        for order in done
        if len(own := nameable(_well_ended(seen, order), _steps)) >= _SESSIONS
        and people_of(own) >= people
    ]
    if not able:
        return None
    best = max(able, key=lambda order: (done[order] / tried[order], done[order], order))
    others = len(seen) - tried[best]
    rate = (sum(done.values()) - done[best]) / others if others else 1.0
    return best if done[best] / tried[best] > rate else None


def _well_ended(seen: Sequence[tuple[Order, AgentSession]], order: Order) -> list[AgentSession]:
    """Return the sessions of an order that ended well."""
    return [one for found, one in seen if found == order and one.success]


def _steps(session: AgentSession) -> list[str]:
    return session.steps


def _phrases(own: Sequence[AgentSession], others: Sequence[AgentSession]) -> list[str]:
    """Return words of first questions that tell these sessions from others."""
    inside, outside = (_said_in(group) for group in (own, others))
    found = {
        word: count / len(own) - outside[word] / max(1, len(others))
        for word, count in inside.items()
        if 2 * count >= len(own) and 2 * outside[word] * len(own) <= count * max(1, len(others))
    }
    return sorted(found, key=lambda word: (-found[word], word))[:_PHRASES]


def _said_in(sessions: Sequence[AgentSession]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for session in sessions:
        first = next((turn.text for turn in session.turns if turn.speaker == "person"), "")
        counted.update({word.casefold() for word in _WORD.findall(first)})
    return counted


def _draft(
    goal: str, order: Order, sessions: Sequence[AgentSession], phrases: Sequence[str]
) -> ArtifactDraft:
    tools = [name for name in order if name != _YES]
    lines = [
        "Say what you are about to do, ask whether to go ahead, and wait for a yes."
        if name == _YES
        else f"Call `{name}`{_arguments(name, sessions)}."
        for name in order
    ]
    steps = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
    skill = {
        "title": f"Order of work: {', '.join(tools)}"[:200],
        "trigger": {"phrases": list(phrases), "tools": sorted(tools)},
        "procedure": "\n".join(["Work in this order:", *steps]),
    }
    evidence = sorted({step for session in sessions for step in session.steps})
    said = f"The order of calls of {len(sessions)} sessions that ended well."
    return ArtifactDraft(f"procedure-{plain_name(goal)}", said, {"skill": skill}, tuple(evidence))


def _arguments(tool: str, sessions: Sequence[AgentSession]) -> str:
    """Return the arguments that all calls of a tool gave."""
    given = [
        use.arguments.keys()
        for session in sessions
        for use in session.uses
        if use.name == tool and not use.failed and isinstance(use.arguments, dict)
    ]
    names = sorted(set.intersection(*map(set, given))) if given else []
    return f" with {', '.join(names)}" if names else ""
