"""What the gateway's workers need to put surrogates into requests, from policy and the master key."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from governance.errors import FieldError, PolicyError
from governance.policy import PolicyBundle
from governance.policy.redaction import RedactionSpec
from headrace.app.home import Home
from headrace.app.installation import DEFAULT_ROUTES
from headrace.app.master_key import Secrets
from proxy.config import Route
from proxy.inline.kept_histories import KeptHistories
from proxy.inline.lanes import LANES
from proxy.inline.route import InlineTerms
from trajectory.documents.source import SourceDocument
from trajectory.files import read_file


@dataclass(frozen=True, slots=True)
class InlineSetup:
    """Travels to each worker, which builds its own detectors; they take seconds to load.

    One that is started again builds what the others have, whatever the bundle's folder says since.
    """

    spec: RedactionSpec
    source: SourceDocument
    """The document as it is written, for errors."""
    folder: Path
    """Of the bundle."""
    recognizers: Mapping[str, bytes]
    """The files of recognisers that it names."""
    scope_key: bytes
    pseudonym_key: bytes
    histories: Path
    """Where it is kept what surrogates stand for in responses that providers keep."""

    @classmethod
    def of(cls, bundle: PolicyBundle, home: Home, secrets: Secrets) -> "InlineSetup | None":
        """Return the setup that a bundle asks for; None where it asks for none."""
        if bundle.redaction.spec.inline is None:
            return None
        return cls(
            bundle.redaction.spec,
            bundle.sources["Redaction"],
            bundle.path.absolute(),
            recognizers_of(bundle.path, bundle.redaction.spec),
            secrets.derive(b"inline"),
            secrets.derive(b"pseudonym"),
            home.histories,
        )

    def __call__(self) -> InlineTerms | None:
        """Build detectors; called once in each worker.

        Raises:
            PolicyError: what policy asks for is not there; the text names file, line and field.
        """
        from governance.redact.build import build_wire_redactors

        spec, key = self.spec.inline, self.pseudonym_key
        try:
            with self._as_begun() as begun:
                redactors = build_wire_redactors(begun, LANES, pseudonym_key=key, base=self.folder)
        except FieldError as error:
            raise PolicyError(self.source.error(error.field, str(error))) from error
        if spec is None or not redactors:
            return None
        return InlineTerms(
            routes=spec.routes,
            pseudonymizers=redactors,
            key=self.scope_key,
            scope=spec.scope,
            to=spec.restore.receivers(),
            passes=spec.on_failure == "pass",
            seconds=spec.budget_ms / 1000,
            histories=KeptHistories(self.histories, self.scope_key, spec.history_hours * 3600)
            if spec.history_hours
            else None,
        )

    @contextmanager
    def _as_begun(self) -> Iterator[RedactionSpec]:
        """Give the policy; where its files of recognisers are others by now, with those that it had."""
        if recognizers_of(self.folder, self.spec) == self.recognizers:
            yield self.spec  # nothing is written: the disk may be full
            return
        with TemporaryDirectory(prefix="headrace-") as folder:
            names = []
            for number, name in enumerate(self.spec.recognizers):
                place = Path(folder, str(number), Path(name).name)
                place.parent.mkdir()
                place.write_bytes(self.recognizers[name])
                names.append(str(place))
            yield self.spec.model_copy(update={"recognizers": tuple(names)})


def recognizers_of(folder: Path, spec: RedactionSpec) -> Mapping[str, bytes]:
    """Return the files of recognisers that a policy names; nothing of those that are gone."""
    found = {}
    for name in spec.recognizers:
        with suppress(OSError):
            found[name] = read_file(folder / name)
    return found


def check_routes(bundle: PolicyBundle, routes: tuple[Route, ...]) -> None:
    """Refuse a policy that names routes which are not there, or are no model's.

    Raises:
        PolicyError: there is one; the text names file, line and field.
    """
    spec = bundle.redaction.spec.inline
    if spec is None:
        return
    kinds = {route.name: route.kind for route in routes}
    if not routes:
        kinds = {route.name: "model" for route in DEFAULT_ROUTES}
    for name in spec.routes:
        if kinds.get(name) != "model":
            known = ", ".join(sorted(one for one, kind in kinds.items() if kind == "model"))
            said = f"no route of a model is named {name}. Routes: {known or 'none'}"
            raise bundle.located("Redaction", FieldError(said, ("spec", "inline", "routes")))
