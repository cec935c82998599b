"""Makes the container ``lakes`` in the servers of scripts/test-object-stores, and says how to reach them.

Usage: python -m tests.lakehouse.stores.containers [az|gs]
"""

import base64
import hmac
import json
import re
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import httpx

_AZURE = "http://127.0.0.1:10123/devstoreaccount1"
_ACCOUNT = "devstoreaccount1"


def azure() -> dict[str, str]:
    """Return options for Azurite; its well-known key stands in its own documentation."""
    readme = Path(__file__).parent / "node_modules" / "azurite" / "README.md"
    found = re.search(r"Eby8[A-Za-z0-9+/=]+", readme.read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"{readme} names no account key; run scripts/test-object-stores")
    return {
        "azure_storage_account_name": _ACCOUNT,
        "azure_storage_account_key": found[0],
        "azure_storage_endpoint": _AZURE,
        "azure_allow_http": "true",
    }


def google() -> dict[str, str]:
    """Return options for the translator."""
    account = {
        "gcs_base_url": "http://127.0.0.1:10124",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return {"google_service_account_key": json.dumps(account), "allow_http": "true"}


def make_azure() -> httpx.Response:
    """Make the container, signed with the account's key."""
    fields = f"x-ms-date:{formatdate(usegmt=True)}\nx-ms-version:2021-08-06"
    signed = "PUT" + "\n" * 12 + f"{fields}\n/{_ACCOUNT}/{_ACCOUNT}/lakes\nrestype:container"
    key = base64.b64decode(azure()["azure_storage_account_key"])
    signature = base64.b64encode(hmac.digest(key, signed.encode(), "sha256")).decode()
    headers = dict(line.split(":", 1) for line in fields.split("\n"))
    headers["authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
    address = f"{_AZURE}/lakes?restype=container"
    return httpx.put(address, headers=headers, trust_env=False)


def patiently(make: Callable[[], httpx.Response]) -> None:
    """Try until the server answers."""
    for _ in range(300):
        try:
            make().raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("a server did not answer within 30 s")


def main(asked: str | None) -> None:
    """Print options, or make the containers."""
    if asked is not None:
        sys.stdout.write(json.dumps({"az": azure, "gs": google}[asked]()))
        return
    patiently(make_azure)
    patiently(lambda: httpx.put("http://127.0.0.1:10125/lakes", trust_env=False))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
