"""Finds member numbers, ``KD-1234-5``: the last digit is the sum of the others, modulo ten."""

import re
from collections.abc import Sequence

from governance.detect.finding import Finding, Unit

_NUMBER = re.compile(r"\bKD-(\d{4})-(\d)\b")


class MemberNumbers:
    """Policy names the entity: ``entities: {MEMBER_NUMBER: mask}``."""

    name = "member-number"
    version = "1"
    entities = frozenset({"MEMBER_NUMBER"})

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]],  # noqa: ARG002 - what other detectors found
    ) -> list[list[Finding]]:
        """Return the numbers in each text whose check digit holds."""
        return [
            [
                Finding("MEMBER_NUMBER", found.start(), found.end(), 1.0, self.name)
                for found in _NUMBER.finditer(unit.view.original)
                if sum(map(int, found[1])) % 10 == int(found[2])
            ]
            for unit in units
        ]


DETECTOR = MemberNumbers()
