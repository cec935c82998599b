"""Policy as YAML: kinds, bundles, selectors and errors that name file, line and field."""

from governance.errors import PolicyError
from governance.policy.bundle import load_bundle
from governance.policy.diff import PolicyChange, diff_bundles
from governance.policy.documents import API_VERSION, KINDS, PolicyBundle
from governance.policy.selector import Facts, Match

__all__ = [
    "API_VERSION",
    "KINDS",
    "Facts",
    "Match",
    "PolicyBundle",
    "PolicyChange",
    "PolicyError",
    "diff_bundles",
    "load_bundle",
]
