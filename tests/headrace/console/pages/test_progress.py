"""Progress: work that is under way is shown to those whom it concerns, and the page looks again."""

from headrace.console.page import Console
from headrace.services.progress_store import progress_of
from tests.headrace.console.conftest import client_of


def test_work_is_shown_while_it_goes_on_and_when_it_ended(console: Console) -> None:
    store = progress_of(console.running)
    trainer, acme = (
        client_of(console, ("trainer", "*"), name="tina"),
        client_of(console, ("privacy", "acme"), name="petra"),
    )
    with (
        store.recorded("training", "shop", who="ida") as train,
        store.recorded("erasure", "subject_1", who="oda", tenant="acme") as erase,
        store.recorded("erasure", "subject_2", who="oda", tenant="globex"),
    ):
        train("fit", 3, 12)
        erase("rows", 5, None)
        (row,) = trainer.get("/progress.json").json()["rows"]
        assert (row["kind"], row["subject"], row["stage"], row["share"], row["started_by"]) == (
            "training", "shop", "fit", 0.25, "ida"
        )  # fmt: skip
        page = trainer.get("/progress")
        assert (
            '<noscript><meta http-equiv="refresh" content="5; url=/progress?looking=1">'
            in page.text
        )
        assert 'hx-get="/progress?looking=1" hx-trigger="every 5s, look"' in page.text
        assert 'value="0.25"' in page.text
        assert 'href="/progress?still=1"' in page.text
        stopped = trainer.get("/progress?still=1")
        assert "looking" not in stopped.text
        assert 'href="/progress"' in stopped.text
        (seen,) = acme.get("/progress.json").json()["rows"]
        assert (seen["subject"], seen["status"], seen["share"]) == ("subject_1", "running", None)
    told = trainer.get("/progress.json").json()
    assert (told["is_live"], told["rows"][0]["status"]) == (False, "done")
    assert "looking" not in trainer.get("/progress").text
    everybody = client_of(console, ("admin", "*"), name="anna").get("/progress.json").json()
    assert {one["subject"] for one in everybody["rows"]} >= {"shop", "subject_1", "subject_2"}
