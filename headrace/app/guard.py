"""What judges tool calls in gateways: documents of kind Action in the policy's folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from governance.audit import AuditLog
from governance.errors import PolicyError
from governance.policy import PolicyBundle
from governance.policy.secrets import read_policy
from headrace.app.home import Home
from headrace.app.installation import operations_of
from headrace.app.master_key import Secrets
from proxy.config import Route, Upstream
from proxy.guard.approvals import Approvals, Audit
from proxy.guard.conditions import fits
from proxy.guard.document import ALL, Action, rules_of
from proxy.guard.operators import OperatorTerms
from proxy.guard.route import GuardTerms, RouteRules
from proxy.guard.rules import ActionRules
from trajectory.canonical import JsonObject, content_hash
from trajectory.dialects.operations import Operation
from trajectory.documents.problems import validate


def read_actions(folder: Path) -> list[Action]:
    """Return the documents of kind Action in a bundle's folder.

    Raises:
        DocumentError: one is wrong; each line names file, line and field.
    """
    return [
        validate(Action, source)
        for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
        if not file.name.endswith((".test.yaml", ".test.yml"))
        for source in read_policy(file, str(file))
        if isinstance(source.value, dict) and source.value.get("kind") == "Action"
    ]


def approvals_of(home: Home, secrets: Secrets) -> Approvals:
    """Return the calls of this installation that wait for a person."""
    return Approvals(home.approvals, secrets.derive(b"approvals"))


def credential_of(secrets: Secrets) -> str:
    """Return what lets operators approve over HTTP; another master key makes another one."""
    return f"hro_{secrets.derive(b'operators').hex()}"


def hash_of(documents: Sequence[Action]) -> str:
    """Return the hash by which decisions name the documents that made them."""
    return content_hash([document.model_dump(mode="json") for document in documents])


@dataclass(frozen=True, slots=True)
class GuardSetup:
    """Travels to each worker, which makes its own rules of it.

    One that is started again judges as the others do, whatever the folder says since.
    """

    documents: tuple[Action, ...]
    content_hash: str
    routes: tuple[Route, ...]
    approvals: Path
    approvals_key: bytes = field(repr=False)
    credential: str = field(repr=False)
    audit: Path
    audit_key: bytes = field(repr=False)

    @classmethod
    def of(
        cls, bundle: PolicyBundle, routes: tuple[Route, ...], home: Home, secrets: Secrets
    ) -> "GuardSetup | None":
        """Return the setup that a bundle's folder asks for; None where it asks for none.

        Raises:
            PolicyError: a document is wrong, or names a route that is not there or no tool's.
        """
        documents = read_actions(bundle.path)
        check_actions(documents, routes)
        if not documents:
            return None
        return cls(
            documents=tuple(documents),
            content_hash=hash_of(documents),
            routes=routes,
            approvals=home.approvals,
            approvals_key=secrets.derive(b"approvals"),
            credential=credential_of(secrets),
            audit=home.audit / "audit.jsonl",
            audit_key=secrets.derive(b"audit"),
        )

    def __call__(self) -> GuardTerms | None:
        """Make the rules; called once in each worker."""
        rules = {
            route.name: RouteRules(found, _operations(route), _bases(route))
            for route in self.routes
            if (found := _rules_for(self.documents, route)) is not None
        }
        answers = {
            route.name: found
            for route in self.routes
            if (found := _rules_for_answers(self.documents, route)) is not None
        }
        if not rules and not answers:
            return None
        approvals = Approvals(self.approvals, self.approvals_key)
        audit = audit_of(AuditLog(self.audit, self.audit_key))
        operators = OperatorTerms(self.credential, audit)
        return GuardTerms(rules, approvals, self.content_hash, answers, operators, audit)


def audit_of(log: AuditLog) -> Audit:
    """Return what writes decisions into an audit log."""

    def audit(actor: str, action: str, subject: str, detail: JsonObject) -> None:
        log.append(actor=actor, action=action, subject=subject, detail=detail)

    return audit


def tap_terms(folder: Path, name: str, home: Home, secrets: Secrets) -> GuardTerms | None:
    """Return what a bundle's folder says of a stdio server; None where it says nothing.

    Raises:
        DocumentError: a document is wrong.
    """
    documents = read_actions(folder)
    rules = rules_of(one for one in documents if any(fits(tap, name) for tap in one.spec.taps))
    if rules is None:
        return None
    approvals = approvals_of(home, secrets)
    audit = audit_of(AuditLog(home.audit / "audit.jsonl", secrets.derive(b"audit")))
    return GuardTerms({name: RouteRules(rules)}, approvals, hash_of(documents), audit=audit)


def check_actions(documents: list[Action], routes: tuple[Route, ...]) -> None:
    """Refuse documents that name routes which are not there, or are of another kind.

    Raises:
        PolicyError: there is one.
    """
    kinds: dict[str, str] = {route.name: route.kind for route in routes}
    for document in documents:
        spec = document.spec
        for place, named, kind in (
            ("routes", spec.routes, "tool"),
            ("answers", spec.answers, "model"),
        ):
            for name in named:
                if name == ALL or kinds.get(name) == kind:
                    continue
                known = ", ".join(sorted(one for one, is_ in kinds.items() if is_ == kind))
                raise PolicyError(
                    f"Action {document.metadata.name}: spec.{place}: no route of {kind}s is named "
                    f"{name}. Routes with `kind: {kind}`: {known or 'none'}"
                )


def _rules_for(documents: Sequence[Action], route: Route) -> ActionRules | None:
    if route.kind != "tool":
        return None
    return rules_of(one for one in documents if {route.name, ALL} & {*one.spec.routes})


def _rules_for_answers(documents: Sequence[Action], route: Route) -> ActionRules | None:
    if route.kind != "model":
        return None
    return rules_of(one for one in documents if {route.name, ALL} & {*one.spec.answers})


def _operations(route: Route) -> tuple[Operation, ...] | None:
    found = operations_of(route)
    return tuple(found) if found or route.openapi else None


def _bases(route: Route) -> tuple[str, ...]:
    return tuple({Upstream.parse(choice.url).path for choice in route.choices})
