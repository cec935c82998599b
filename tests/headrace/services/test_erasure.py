"""An erasure reaches what governance holds back beside it."""

from pathlib import Path

from headrace.app.context import AppContext
from headrace.govern.quarantine_store import quarantine_of
from headrace.services.consent import pseudonyms_of
from headrace.services.erasure import ErasureRequest, erase_person
from tests.headrace.installations import chat
from tests.train.lakes import Session, lake_of


def test_what_is_held_while_rows_are_removed_goes_too(tmp_path: Path) -> None:
    """Its case goes with the rows, so that no later drop of cases would find it."""
    app = AppContext(tmp_path, debug=False)
    held = chat(1, [{"role": "user", "content": "hello"}])
    tenant = held.client.tenant_id
    jo = pseudonyms_of(app.secrets, tenant, "jo")[0]
    lake_of(app.home.create().lake, Session(1, tenant=tenant, subject=jo))
    store = quarantine_of(app.home, app.secrets)

    def hold(*_: object) -> None:
        store.keep([held])

    done = erase_person(app, ErasureRequest(tenant, ["jo"], "oda"), hold)
    assert store.names() == set()
    assert done.quarantine.dropped == 1
