"""Detectors of the default policy, for the process that the gateways of tests are forked from.

Loading them takes seven seconds of a processor; who is forked after it needs one and a half.
"""

import gc

from governance.policy import load_bundle
from governance.policy.bundle import SHIPPED
from governance.redact.build import redactor_of

redactor_of(load_bundle(SHIPPED / "default"), pseudonym_key=b"p" * 32)
gc.collect()
gc.freeze()
