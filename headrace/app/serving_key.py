"""The key between the gateway and the server of registered models: made once, never shown."""

import os
import secrets
from pathlib import Path

from headrace.app.home import Home


def serving_key(home: Home) -> Path:
    """Return the file that holds the key; it is made where it is missing."""
    path = home.secrets / "serving.key"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    return path
