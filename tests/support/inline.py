"""Policies that put surrogates into requests, for gateways of tests and benchmarks."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from governance.policy import load_bundle
from governance.policy.bundle import SHIPPED
from headrace.app.inline import InlineSetup

SCOPE_KEY, PSEUDONYM_KEY = b"i" * 32, b"p" * 32


def inline_setup(folder: Path, **inline: Any) -> InlineSetup:
    """Write the default policy with ``Redaction.inline`` into a folder; return what workers need of it."""
    shutil.copytree(SHIPPED / "default", folder)
    path = folder / "redaction.yaml"
    document = yaml.safe_load(path.read_text())
    document["spec"]["inline"] = inline
    path.write_text(yaml.safe_dump(document))
    made = load_bundle(folder).content_hash
    return InlineSetup(folder, made, SCOPE_KEY, PSEUDONYM_KEY, folder.with_name("histories.sqlite"))
