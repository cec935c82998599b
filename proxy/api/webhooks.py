"""Webhooks: signed events of CI, tickets, chat and repositories become feedback, by rules in the settings."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from jmespath.exceptions import JMESPathError

from proxy.api.feedback import FeedbackError, FeedbackItem, read_feedback_items
from proxy.api.signatures import is_signed
from proxy.clients.credentials import RawFields
from proxy.clients.keys import KeyRegistry
from proxy.config import ENDPOINT_PREFIX
from proxy.config.webhooks import Webhook, WebhookRule
from proxy.request_json import parsed
from proxy.responses import LocalReply, json_reply
from proxy.telemetry.counters import Counters
from trajectory.canonical import JsonObject, JsonValue, content_hash
from trajectory.errors import ConfigurationError
from trajectory.exchange import ClientIdentity

WEBHOOKS_PATH = f"{ENDPOINT_PREFIX}v1/webhooks/"
_MOST_ITEMS = 100
"""Of one event, like the commits of a push."""
_LONGEST = 10_000
"""Characters of a text in which a name is looked for."""
_REFUSED = json_reply(401, {"error": {"message": "the signature is missing, wrong or too old"}})

_log = logging.getLogger(__name__)


class Webhooks:
    """Proves events and reads what they say."""

    def __init__(
        self, settings: Sequence[Webhook], registry: KeyRegistry, counters: Counters
    ) -> None:
        """Take these webhooks.

        Raises:
            ConfigurationError: a secret's source is missing or empty.
        """
        for one in settings:
            try:
                one.secret.secret()
            except ConfigurationError as error:
                raise ConfigurationError(f"webhook {one.name}: {error}") from None
        self._by_path = {f"{WEBHOOKS_PATH}{one.name}": one for one in settings}
        self._registry = registry
        self._counters = counters
        self._told: set[str] = set()

    def takes(self, path: str) -> bool:
        """Tell whether a webhook has this path."""
        return path in self._by_path

    def caller(self, path: str) -> ClientIdentity | None:
        """Return for whom a webhook speaks; None when its client key is unknown or revoked."""
        hook = self._by_path[path]
        client = self._registry.identity(hook.client_key)
        if client is None:
            self._tell(hook, f"client key {hook.client_key} is none now")
        return client

    def read(
        self, path: str, client: ClientIdentity, fields: RawFields, body: bytes
    ) -> tuple[LocalReply, Sequence[FeedbackItem]]:
        """Return the answer to an event, and the feedback that must be kept before it is given."""
        hook = self._by_path[path]
        try:
            signed = is_signed(hook.sender, hook.secret.secret(), fields, body)
        except ConfigurationError as error:
            self._tell(hook, str(error))
            return json_reply(503, {"error": {"message": "the webhook's secret is missing"}}), ()
        if not signed:
            self._count(hook, "refused")
            return _REFUSED, ()
        try:
            event = parsed(body)
        except (ValueError, RecursionError):
            self._count(hook, "not_json")
            return json_reply(200, {"accepted": 0}), ()
        if hook.sender == "slack" and _text(event, "type") == "url_verification":
            self._count(hook, "verified")
            return json_reply(200, {"challenge": _text(event, "challenge") or ""}), ()
        items = self._items(hook, client, event, sha256(body).hexdigest())
        return json_reply(200, {"accepted": len(items)}), items

    def _items(
        self, hook: Webhook, client: ClientIdentity, event: JsonValue, event_id: str
    ) -> list[FeedbackItem]:
        found: list[FeedbackItem] = []
        matched = False
        for number, rule in enumerate(hook.rules):
            said = list(self._said(hook, rule, event))
            matched = matched or bool(said)
            for place, one in enumerate(said):
                if one is None or len(found) >= _MOST_ITEMS:
                    self._count(hook, "left_out")
                    continue
                # By the body: what is sent again, by whomever, counts once.
                key = content_hash([hook.name, event_id, number, place])
                text = json.dumps({**one, "idempotency_key": key}).encode()
                try:
                    found += read_feedback_items(text, tenant_id=client.tenant_id)
                except FeedbackError:
                    self._count(hook, "left_out")
        if not matched:
            self._count(hook, "unknown")
        for _ in found:
            self._count(hook, "accepted")
        return found

    def _said(
        self, hook: Webhook, rule: WebhookRule, event: JsonValue
    ) -> Iterator[JsonObject | None]:
        """Yield what a rule finds in an event; None where it fits and says nothing."""
        try:
            if not _truth(rule.expressions["when"].search(event)):
                return
            parts = rule.expressions["each"].search(event) if rule.each else [event]
        except JMESPathError:  # a function met a value of another type: not such an event
            return
        for part in parts if isinstance(parts, list) else ():
            try:
                yield _feedback(hook, rule, part)
            except JMESPathError:
                yield None

    def _count(self, hook: Webhook, outcome: str) -> None:
        self._counters.webhooks[hook.name, outcome] += 1

    def _tell(self, hook: Webhook, problem: str) -> None:
        self._count(hook, "refused")
        if problem not in self._told:
            self._told.add(problem)
            _log.error("webhook %s takes no events: %s", hook.name, problem)


def _feedback(hook: Webhook, rule: WebhookRule, part: JsonValue) -> JsonObject | None:
    """Return an item of the feedback API; None where the target or the word is none."""
    found = {
        name: one.search(part)
        for name, one in rule.expressions.items()
        if name not in ("when", "each")
    }
    target = _name(found["id"], rule.match)
    if target is None:
        return None
    item: JsonObject = {
        f"{rule.target}_id": target,
        "name": rule.name,
        "source_kind": rule.source_kind,
        "source": f"webhook:{hook.name}",
    }
    if rule.value:
        value = _number(found["value"], rule.values)
        if value is None and not (rule.label or rule.rationale):
            return None
        item["value"] = value
    for field in ("label", "rationale"):
        text = found.get(field)
        if isinstance(text, str) and text:
            item[field] = text
    moment = _moment(found.get("observed_at"))
    if moment is not None:
        item["observed_at"] = moment
    return item


def _name(value: JsonValue, pattern: str) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None
    if pattern:
        found = re.search(pattern, value[:_LONGEST])
        value = found[1] if found is not None and found[1] is not None else ""
    return value.strip() or None


def _number(value: JsonValue, words: Mapping[str, float]) -> float | None:
    if words:
        if isinstance(value, bool):
            value = "true" if value else "false"
        return words.get(str(value)) if isinstance(value, str | int) else None
    try:
        return float(value) if isinstance(value, bool | int | float) else None
    except OverflowError:  # JSON has whole numbers of any length
        return None


def _moment(value: JsonValue) -> str | None:
    """Return a time as ISO 8601; what is none is left out, then the arrival counts."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC).isoformat()
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is not None and moment.tzinfo is not None:
            moment.astimezone(UTC)  # UTC's calendar may lack it
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat() if moment is not None and moment.tzinfo is not None else None


def _truth(value: Any) -> bool:
    """Return what JMESPath takes for true: all but false, null and what is empty."""
    return value is not None and value is not False and value not in ("", [], {})


def _text(event: JsonValue, name: str) -> str | None:
    value = event.get(name) if isinstance(event, dict) else None
    return value if isinstance(value, str) else None
