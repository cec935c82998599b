"""A SQLite file of a home is damaged: it is made again with a warning, or an error names it and what to do."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from governance.policy.bundle import SHIPPED
from headrace.app.context import AppContext
from headrace.app.guard import approvals_of
from headrace.app.home import Home
from headrace.cli import run
from headrace.console.users import system_user
from headrace.services.awaited_people import AwaitedPeople
from headrace.services.request_store import RequestStore
from proxy.guard.rules import ActionRule, RequestedCall, Ruling
from proxy.inline.kept_histories import HistoryOwner, KeptHistories, KeptHistory
from tests.headrace.installations import PlantedInstallation, chat
from trajectory.assembly.result import PlacedPeople

MAIL = "leonie.hartwig@corp-mail.de"
GOVERN = ("govern", "--once")
ERASE = ("erase", MAIL, "--tenant", "acme", "--yes")


class StateFile(NamedTuple):
    """A file, and what reads it."""

    path: str
    command: tuple[str, ...]
    is_made_again: bool = False


FILES = (
    StateFile("state/checkpoint.sqlite", GOVERN, is_made_again=True),
    StateFile("state/near/*/*/near.sqlite", GOVERN, is_made_again=True),
    StateFile("state/histories.sqlite", ERASE, is_made_again=True),
    StateFile("state/awaited.sqlite", GOVERN),
    StateFile("secrets/subjects.sqlite", GOVERN),
    StateFile("state/approvals.sqlite", ("approvals", "list", "--status", "all")),
    StateFile("state/console.sqlite", ("console", "sessions")),
    StateFile("state/requests/requests.sqlite", ("requests", "list", "--status", "all")),
)
"""Those that only a gateway writes are in the tests of its pins and counters: it goes on without them."""

type Harm = Callable[[bytes], bytes]

HARMS: dict[str, Harm] = {
    "noise": lambda whole: b"\xaa" * len(whole),
    "pages": lambda whole: whole[:100] + b"\xaa" * (len(whole) - 100),
    "cut": lambda whole: whole[: len(whole) // 2],
}


@pytest.fixture(autouse=True)
def own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which each file holds something."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEADRACE_MASTER_KEY", raising=False)
        folder, policy = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("policy")
        for file in (*(SHIPPED / "gdpr").glob("*.yaml"), SHIPPED / "strict" / "dedup.yaml"):
            shutil.copy(file, policy)
        said = [{"role": "user", "content": f"Write to {MAIL}, my mail address, about the order."}]
        assert PlantedInstallation(folder, str(policy)).govern(chat(1, said)) == {"stored": 1}
        app = AppContext(folder, debug=False)
        owner = HistoryOwner("acme", "key", "r")
        histories = KeptHistories(app.home.histories, app.secrets.derive(b"inline"), 3600)
        histories.keep(owner, "resp_1", KeptHistory(values={"EMAIL_bcdf": MAIL}))
        histories.close()
        someone = PlacedPeople("acme", "step", "u-4711", (), ())
        AwaitedPeople(app, app.lake.consents()).keep([someone])
        approvals_of(app.home, app.secrets).ask(
            RequestedCall("pay", {"amount": 5}, tenant="acme"),
            ActionRule("payments", Ruling.HOLD),
            key_id="key",
            route="r",
            step_id="step",
        )
        RequestStore(app.home.requests).ask(
            system_user(), "erase", tenant="acme", subject="p", parameters={}, why=""
        )
        assert run(["--home", str(folder), "console", "--link"]) == 0
    return folder


def test_every_file_is_tried(whole: Path) -> None:
    known = {path for one in FILES for path in whole.glob(one.path)}
    assert {*whole.rglob("*.sqlite")} == known


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("file", FILES, ids=[one.path for one in FILES])
def test_a_damaged_file_is_told_with_its_name_and_what_to_do(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: StateFile, harm: str
) -> None:
    home = Home(tmp_path / "home")
    shutil.copytree(whole, home.root)
    (path,) = home.root.glob(file.path)
    for log in path.parent.glob(f"{path.name}-*"):
        log.unlink()
    path.write_bytes(HARMS[harm](path.read_bytes()))
    capsys.readouterr()
    code = run(["--home", str(home.root), *file.command])
    told = capsys.readouterr().err
    assert "unexpected" not in told
    assert path.name.partition(".")[0] in told
    if file.is_made_again:
        assert code == 0, told
        assert run(["--home", str(home.root), *file.command]) == 0
        assert "damaged" not in capsys.readouterr().err
    else:
        assert code == 3
        assert "is damaged" in told
        assert "move it away" in told or "restore it" in told
