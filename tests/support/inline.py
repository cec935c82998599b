"""Policies that put surrogates into requests, for gateways of tests and benchmarks."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from governance.policy import load_bundle
from governance.policy.bundle import SHIPPED
from headrace.app.inline import InlineSetup
from proxy.inline.route import InlineTerms, WirePseudonymizer
from tests.proxy.gateway_process import preload
from trajectory.surrogate import PseudonymisedText

preload("tests.support.loaded_detectors")

SCOPE_KEY, PSEUDONYM_KEY = b"i" * 32, b"p" * 32


def inline_setup(folder: Path, **inline: Any) -> InlineSetup:
    """Write the default policy with ``Redaction.inline`` into a folder; return what workers need of it."""
    shutil.copytree(SHIPPED / "default", folder)
    path = folder / "redaction.yaml"
    document = yaml.safe_load(path.read_text())
    document["spec"]["inline"] = inline
    path.write_text(yaml.safe_dump(document))
    bundle = load_bundle(folder)
    return InlineSetup(
        bundle.redaction.spec,
        bundle.sources["Redaction"],
        folder,
        {},
        SCOPE_KEY,
        PSEUDONYM_KEY,
        folder.with_name("histories.sqlite"),
    )


@dataclass(frozen=True)
class _Breakable:
    """What puts surrogates into requests, until a file says that it is broken."""

    inner: WirePseudonymizer
    broken: Path

    def pseudonymise(self, *arguments: Any, **named: Any) -> PseudonymisedText:
        if self.broken.exists():
            raise RuntimeError("broken")
        return self.inner.pseudonymise(*arguments, **named)


@dataclass(frozen=True)
class BreakableSetup:
    """The setup of a gateway whose detectors break while the file ``broken`` is there."""

    setup: InlineSetup
    broken: Path

    def __call__(self) -> InlineTerms | None:
        terms = self.setup()
        assert terms is not None
        made = tuple(_Breakable(one, self.broken) for one in terms.pseudonymizers)
        return replace(terms, pseudonymizers=made)
