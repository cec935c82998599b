"""What workers build of a policy: one that is started again has what the others have."""

import json
import pickle
import shutil
from pathlib import Path

import yaml

from governance.policy import load_bundle
from headrace.app.home import Home
from headrace.app.inline import InlineSetup
from headrace.app.master_key import load_secrets
from proxy.inline.openai import ChatRequest
from tests.support.inline import inline_setup

BADGES = """
recognizers:
  - name: badges
    supported_language: en
    supported_entity: BADGE
    patterns: [{name: badge, regex: 'BDG-[0-9]{4}', score: 0.9}]
"""


def found(setup: InlineSetup, said: str) -> set[str]:
    """Return what gets surrogates in a worker, to which the setup travels."""
    terms = pickle.loads(pickle.dumps(setup))()  # noqa: S301 - its own bytes
    assert terms is not None
    body = {"messages": [{"role": "user", "content": said}]}
    request = ChatRequest(json.dumps(body).encode())
    told = terms.pseudonymizers[0].pseudonymise(
        request.text,
        request.place,
        request.said(),
        tenant="acme",
        key=terms.key,
        seconds=600,
        known={},
        people=(),
    )
    return {*told.issued.values()}


def test_a_worker_that_is_started_again_finds_what_the_others_find(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    inline_setup(folder, routes=["openai"])
    path = folder / "redaction.yaml"
    document = yaml.safe_load(path.read_text())
    own = {
        "names": {"model": None},
        "entities": {"BADGE": "mask"},
        "recognizers": ["more/own.yaml"],
    }
    path.write_text(yaml.safe_dump({**document, "spec": {**document["spec"], **own}}))
    (folder / "more").mkdir()
    (folder / "more" / "own.yaml").write_text(BADGES)
    secrets = load_secrets(tmp_path / "secrets", create=True)
    setup = InlineSetup.of(load_bundle(folder), Home(tmp_path), secrets)
    assert setup is not None
    assert found(setup, "badge BDG-1234") == {"BDG-1234"}
    (folder / "more" / "own.yaml").write_text(BADGES.replace("BDG", "CARD"))
    assert found(setup, "badge BDG-1234, CARD-5678") == {"BDG-1234"}
    shutil.rmtree(folder)
    assert found(setup, "badge BDG-1234") == {"BDG-1234"}
