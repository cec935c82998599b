"""Whole installations with planted exchanges, and the search for what of them rests anywhere."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.app.setting_sources import load_settings
from headrace.govern.quarantine_store import write_again
from headrace.govern.worker import build_pipeline, govern_once
from lakehouse.maintenance.scan import scan
from proxy.spool import SpoolWriter
from trajectory.canonical import JsonObject
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)

ALL = ("debug", "eval", "train_sft", "train_preference", "train_rl")
_JSON = ("content-type", "application/json")


_BEGUN = datetime.now(UTC) - timedelta(hours=1)
"""Calls are in the order of their numbers, however long a test takes to write them down."""


def exchange(number: int, path: str, body: JsonObject, answer: JsonObject) -> Exchange:
    """Return a finished exchange of tenant ``acme``."""
    at = _BEGUN + timedelta(seconds=number)
    return Exchange(
        exchange_id=f"{number:032x}",
        client=ClientIdentity("acme", "app", "test", "key", ALL),
        route="r",
        mode="base_url",
        upstream="http://u:1",
        started_at=at,
        first_byte_at=at,
        ended_at=at,
        request=HttpRequest("POST", path, "", (_JSON,), json.dumps(body).encode()),
        response=HttpResponse(200, (_JSON,), json.dumps(answer).encode()),
        outcome=ExchangeOutcome.COMPLETE,
        position=SpoolPosition("w", 0, number),
    )


def chat(
    number: int, messages: Sequence[JsonObject], text: str = "done", **body: object
) -> Exchange:
    """Return one exchange of OpenAI's chat API."""
    asked: JsonObject = {"model": "m", "messages": [*messages], **body}  # type: ignore[dict-item]
    said: JsonObject = {"role": "assistant", "content": text}
    answer: JsonObject = {
        "id": f"chatcmpl-{number}x",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": said}],
    }
    return exchange(number, "/v1/chat/completions", asked, answer)


class PlantedInstallation:
    """An installation in a folder of its own."""

    def __init__(self, folder: Path, bundle: str = "default") -> None:
        """Make one under a shipped policy."""
        self.home = Home(folder).create()
        self.secrets = load_secrets(self.home.secrets, create=True)
        self.home.settings_file.write_text(f"policy: {{bundle: {bundle}}}\n", encoding="utf-8")
        self._writers = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Govern with a pipeline that remembers nothing but what is on the disk."""
        self._pipeline = build_pipeline(
            load_settings(home=self.home.root), self.home, self.secrets, sys.stderr.write
        )

    def tidy(self, quarantine_days: float) -> None:
        """Let go of what quarantine has kept for so many days."""
        self._pipeline.tidy(quarantine_days)

    def govern(self, *exchanges: Exchange) -> dict[str, int]:
        """Capture and govern exchanges; return how many of them went where."""
        self._writers += 1
        name = f"w{self._writers}"
        if not exchanges:
            return self._governed()
        with SpoolWriter(self.home.spool, self.secrets.derive(b"spool")) as writer:
            for place, one in enumerate(exchanges):
                write_again(writer, replace(one, position=SpoolPosition(name, 0, place)))
        return self._governed()

    def _governed(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for report in govern_once(self._pipeline):
            for disposition, count in report.dispositions.items():
                counts[disposition] = counts.get(disposition, 0) + count
        return counts

    def at_rest(self, values: Iterable[str]) -> dict[str, list[str]]:
        """Return where values stand in files outside the sealed spool."""
        wanted = list(values)
        found = scan([self.home.root], wanted, skip=lambda path: path == self.home.spool)
        places: dict[str, list[str]] = {}
        for hit in found.hits:
            places.setdefault(wanted[hit.value - 1], []).append(
                f"{Path(hit.path).name} {hit.where}"
            )
        return places
