"""What the gateway's workers need to put surrogates into requests, from policy and the master key."""

from dataclasses import dataclass
from pathlib import Path

from governance.errors import FieldError
from governance.policy import PolicyBundle, load_bundle
from headrace.app.home import Home
from headrace.app.installation import DEFAULT_ROUTES
from headrace.app.master_key import Secrets
from proxy.config import Route
from proxy.inline.kept_histories import KeptHistories
from proxy.inline.lanes import LANES
from proxy.inline.route import InlineTerms
from trajectory.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class InlineSetup:
    """Travels to each worker, which builds its own detectors; they take seconds to load."""

    bundle: Path
    content_hash: str
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
            bundle.path.absolute(),
            bundle.content_hash,
            secrets.derive(b"inline"),
            secrets.derive(b"pseudonym"),
            home.histories,
        )

    def __call__(self) -> InlineTerms | None:
        """Build detectors; called once in each worker.

        Raises:
            ConfigurationError: what policy asks for is not there, or the bundle has changed meanwhile.
        """
        from governance.redact.build import wire_redactors_of

        bundle = load_bundle(self.bundle)
        if bundle.content_hash != self.content_hash:
            raise ConfigurationError("the policy changed while the gateway started; start it again")
        spec = bundle.redaction.spec.inline
        redactors = wire_redactors_of(bundle, LANES, pseudonym_key=self.pseudonym_key)
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
