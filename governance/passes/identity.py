"""Between selection and rows: which agent each step is of, and which version of its harness it had.

Only redacted text is looked at, and only steps that will be stored are: a version that nobody uses has no number.
Numbers are given before the batch is written, and a form that has one keeps it. So a batch that is
governed again after a crash gets the same numbers.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from governance.identifiers import Namer
from governance.passes.select import SelectedBatch, SelectedCall
from trajectory.harness.lineage import FormKey, HarnessVersion, Lineages, Sighting, Sketch
from trajectory.harness.normal_form import NormalForm, normal_form
from trajectory.step import Harness

_REMEMBERED = 4096


class LineageRegister(Protocol):
    """Gives every version of a harness its number, once; the lakehouse ships the durable one."""

    def number(self, sightings: Sequence[Sighting]) -> dict[FormKey, HarnessVersion]:
        """Return the versions of harnesses, by key; those that are new get the next numbers.

        Raises:
            RetryableError: new numbers could not be stored; the same call may be made again.
        """
        ...


class MemoryLineages:
    """Numbers versions in memory; for tests, dry runs and policies tried by hand."""

    def __init__(self) -> None:
        """Begin without versions."""
        self._lineages = Lineages()

    def number(self, sightings: Sequence[Sighting]) -> dict[FormKey, HarnessVersion]:
        """See :class:`LineageRegister`."""
        self._lineages.number(sightings)
        found = {one.key: self._lineages.find(one.key) for one in sightings}
        return {key: version for key, version in found.items() if version is not None}


class Sightings:
    """Names the normal forms of harnesses; a form that was named lately is not hashed again."""

    def __init__(self, namer: Namer) -> None:
        """Name with the keys of this namer."""
        self._namer = namer
        self._form_ids: dict[tuple[str, NormalForm], str] = {}

    def of(self, harness: Harness, app_id: str, agent: str | None) -> Sighting:
        """Return a harness as a step of an application has it."""
        tenant = harness.tenant_id
        form = normal_form(harness.system_prompt, harness.tools)
        form_id = self._form_ids.get((tenant, form))
        if form_id is None:
            if len(self._form_ids) >= _REMEMBERED:
                self._form_ids.clear()
            form_id = self._namer.name(tenant, "harness_form", form.value)
            self._form_ids[tenant, form] = form_id
        return Sighting(
            tenant_id=tenant,
            app_id=app_id,
            agent=agent,
            form_id=form_id,
            harness_id=harness.harness_id,
            seen_at=harness.first_seen_at,
            sketch=partial(Sketch.of, form, self._namer.key_of(tenant)),
        )


class IdentityPass:
    """Writes name and version of the harness, and the agent's role, into steps."""

    def __init__(self, register: LineageRegister, namer: Namer) -> None:
        """Take numbers from ``register``."""
        self._register = register
        self._sightings = Sightings(namer)

    def identify(self, selected: SelectedBatch) -> SelectedBatch:
        """Return the batch with its steps' identities.

        Raises:
            RetryableError: new numbers could not be stored; the batch stays in the spool.
        """
        seen = {
            one.call.step_id: self._sightings.of(
                one.draft.harness, one.draft.step.app_id, one.draft.clean.fields.agent
            )
            for one in selected.calls
            if one.draft.harness is not None
        }
        if not seen:
            return selected
        versions = self._register.number([*seen.values()])
        calls = tuple(
            _with(one, versions[sighting.key])
            if (sighting := seen.get(one.call.step_id)) is not None
            else one
            for one in selected.calls
        )
        return replace(selected, calls=calls)


def _with(one: SelectedCall, version: HarnessVersion) -> SelectedCall:
    step = replace(
        one.draft.step,
        agent_role=one.draft.step.agent_role or version.harness_name,
        harness_name=version.harness_name,
        harness_version=version.harness_version,
    )
    return one._replace(draft=replace(one.draft, step=step))
