"""The console's files for browsers: others' work is what was published, and nothing else may run."""

import json
from pathlib import Path

from starlette.testclient import TestClient

import headrace.console
from headrace.console.assets import SCRIPTS, address, hash_of, integrity, vendored_packages
from headrace.console.page import Console
from tests.headrace.console.conftest import client_of

STATIC = Path(headrace.console.__file__).parent / "static"


def test_vendored_files_are_those_that_were_written_down() -> None:
    found = {path.name for path in (STATIC / "vendor").iterdir()} - {"manifest.json"}
    packages = vendored_packages()
    assert {name for one in packages for name in one.files} == found
    for package in packages:
        assert package.source.startswith("npm:")
        assert package.source.endswith(f"@{package.version}")
        assert package.licence in ("0BSD", "MIT")
        assert any(name.endswith("-LICENSE.txt") for name in package.files), package.name
        for name, written in package.files.items():
            assert hash_of((STATIC / "vendor" / name).read_bytes()) == written, name


def test_a_script_that_was_changed_keeps_the_hash_that_refuses_it() -> None:
    written = json.loads((STATIC / "vendor" / "manifest.json").read_text())
    hashes = {f"vendor/{name}": it for one in written for name, it in one["files"].items()}
    for name in SCRIPTS:
        own = hash_of((STATIC / name).read_bytes())
        assert integrity(name) == hashes.get(name, own)


def test_a_page_has_our_scripts_by_their_hashes_and_no_others_may_run(console: Console) -> None:
    client = client_of(console, ("viewer", "*"))
    answer = client.get("/account")
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy == {
        "default-src": "'none'",
        "script-src": " ".join(f"'{integrity(name)}'" for name in SCRIPTS),
        "style-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "headrace",
    }
    for name in SCRIPTS:
        tag = f'<script src="{address(name)}" integrity="{integrity(name)}" defer></script>'
        assert answer.text.count(tag) == 1
    assert answer.text.count("<script") == len(SCRIPTS)


def test_a_file_is_kept_by_its_hash_and_a_page_never(console: Console) -> None:
    client: TestClient = client_of(console, ("viewer", "*"))
    for name in (*SCRIPTS, "console.css", "icon.svg", "vendor/uPlot.min.css"):
        kept = client.get(address(name))
        assert kept.status_code == 200
        assert "immutable" in kept.headers["cache-control"]
        assert client.get(f"/static/{name}").headers["cache-control"] == "no-store"
    assert client.get("/static/nosuch.js?x").headers["cache-control"] == "no-store"
    assert client.get("/account?x").headers["cache-control"] == "no-store"
