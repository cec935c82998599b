"""A gateway whose disk refuses to grow a file from the start: see test_refusing_disk.py.

``python -m tests.proxy.refusing_disk SETTINGS``: says where it listens, and serves.
"""

import json
import logging
import os
import resource
import sys
from pathlib import Path

from proxy.config import GatewayConfig
from proxy.gateway import serve
from proxy.mitm.authority import ensure_authority
from tests.proxy.gateway_process import FINGERPRINT_KEY, SPOOL_KEY


def main(settings: Path) -> None:
    """Serve while no file may have a byte; whoever raises the soft limit mends the disk."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    config = GatewayConfig.model_validate_json(settings.read_text())
    ensure_authority(config.authority)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    serve(
        config,
        spool_key=SPOOL_KEY,
        fingerprint_key=FINGERPRINT_KEY,
        ready=lambda found: os.write(1, json.dumps([found.base_url, found.admin]).encode() + b"\n"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
