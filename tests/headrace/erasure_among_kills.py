"""People are erased beside governing, compaction and substrates, all killed at random; started by a test.

Usage: python -m tests.headrace.erasure_among_kills FOLDER SEED. The commands are forked from a process
that has imported everything and used nothing, so that a death costs no more than a life.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import yaml

from headrace.cli import run
from headrace.govern.quarantine_store import write_again
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from proxy.spool import SpoolWriter
from tests.headrace.installations import PlantedInstallation, chat
from tests.headrace.two_governors import begin
from trajectory.exchange import Exchange, SpoolPosition

PEOPLE = 6
ERASED = (1, 4)
DEATHS = 12
WORDS = ("zorvaquim", "teldrax", "quimbleth", "vornaskel", "plindorf", "graxetum")
"""One of each person's conversations; no detector takes them for personal data, so they rest in clear."""
SUBSTRATE = {
    "apiVersion": "headrace/v1",
    "kind": "Substrate",
    "metadata": {"name": "shop"},
    "spec": {
        "purposes": ["train_sft"],
        "reward": {"signals": {"success": 1.0}, "missing": "zero"},
        "split": {"by": ["tenant"], "holdout": 0.0},
    },
}


LATER = [number for number in range(25, 49) if number % PEOPLE not in ERASED]


def mail(person: int) -> str:
    return f"person{person}@corp-mail.com"


def conversation(number: int) -> Exchange:
    """Return one call of a person who names themselves and a word of their own."""
    person = number % PEOPLE
    asked = f"I am {mail(person)}. Order {number} of the {WORDS[person]} kind."
    return chat(number, [{"role": "user", "content": asked}], f"The {WORDS[person]} one is noted.")


def fill(folder: Path) -> None:
    """Govern what all people said; more of those who stay waits in the spool."""
    house = PlantedInstallation(folder)
    stored = house.govern(*(conversation(number) for number in range(1, 25)))
    assert stored == {"stored": 24}, stored
    with SpoolWriter(house.home.spool, house.secrets.derive(b"spool")) as writer:
        for place, number in enumerate(LATER):
            write_again(
                writer, replace(conversation(number), position=SpoolPosition("w2", 0, place))
            )
    (folder / "shop.yaml").write_text(yaml.safe_dump(SUBSTRATE), encoding="utf-8")


def command(*arguments: str) -> int:
    """Run one command of Headrace in this process, without its output."""
    with redirect_stdout(StringIO()):
        return run(list(arguments))


def until_done(*arguments: str) -> Callable[[], None]:
    """Return work that runs a command until it succeeds: another may hold what it needs."""

    def work() -> None:
        deadline = time.monotonic() + 120
        while command(*arguments) != 0:
            assert time.monotonic() < deadline, arguments
            time.sleep(0.05)

    return work


def erase(person: int) -> Sequence[str]:
    return ("erase", mail(person), "--tenant", "acme", "--yes", "--json")


def compact() -> None:
    """Join small files and take away old ones, again and again."""
    while True:
        command("lake", "compact")
        command("lake", "vacuum", "--hours", "24")


def disturb(folder: Path, draw: random.Random) -> int:
    """Kill commands at random moments; return how many died."""
    works: dict[str, Callable[[], None]] = {
        **{f"erase {person}": until_done(*erase(person)) for person in ERASED},
        "compact": compact,
        "build": until_done("substrate", "build", str(folder / "shop.yaml")),
        "govern": until_done("govern", "--once"),
    }
    running: dict[str, int] = {}
    deaths = 0
    try:
        while deaths < DEATHS:
            for name, work in works.items():
                if name not in running:
                    running[name] = begin(work)
            time.sleep(draw.uniform(0.05, 0.6))
            victim = draw.choice(list(works))
            os.kill(running[victim], signal.SIGKILL)
            ended = os.waitstatus_to_exitcode(os.waitpid(running.pop(victim), 0)[1])
            assert ended in (0, -signal.SIGKILL), f"{victim} ended with {ended}"
            deaths += ended != 0
        for name in [name for name in running if name != "compact"]:
            ended = os.waitstatus_to_exitcode(os.waitpid(running.pop(name), 0)[1])
            assert ended == 0, (name, ended)
    finally:
        for child in running.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return deaths


def check(folder: Path) -> None:
    """The erased are nowhere, those who stay are there once, and every record of it holds."""
    for person in ERASED:
        assert command(*erase(person)) == 0
    for arguments in (
        ("govern", "--once"),
        ("substrate", "build", str(folder / "shop.yaml")),
        ("audit", "verify"),
    ):
        assert command(*arguments) == 0, arguments
    house = PlantedInstallation(folder)
    words = [WORDS[person] for person in ERASED]
    assert house.at_rest([*words, *map(mail, range(PEOPLE))]) == {}
    lake = Lake.open(str(house.home.lake))
    ledger = lake.query("select exchange_id, disposition from exchanges").to_pylist()
    assert Counter(row["disposition"] for row in ledger) == {"stored": 32, "erased": 8}
    steps = lake.query("select exchange_id from steps").to_pylist()
    stored = [row["exchange_id"] for row in ledger if row["disposition"] == "stored"]
    assert sorted(row["exchange_id"] for row in steps) == sorted(stored)
    assert len(set(stored)) == 32
    report = verify(lake, message_key=house.secrets.derive(b"message"))
    assert report.ok, report.findings
    assert not list((house.home.lake / "_intents").iterdir())


def main(folder: Path, seed: int) -> None:
    """Run one world; each part in a process of its own, so that nothing is forked from a lake's threads."""
    os.environ["HEADRACE_HOME"] = str(folder)
    assert _ended(lambda: fill(folder)) == 0
    deaths = disturb(folder, random.Random(seed))  # noqa: S311 - no secret
    assert _ended(lambda: check(folder)) == 0
    sys.stdout.write(json.dumps({"deaths": deaths}) + "\n")


def _ended(work: Callable[[], None]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(begin(work), 0)[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
