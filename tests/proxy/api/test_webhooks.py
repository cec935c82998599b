"""Events of CI, tickets, chat and repositories, in their senders' own shapes, by the example's rules."""

import hmac
import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from proxy.config import GatewayConfig
from tests.proxy.gateway_process import GatewayProcess
from trajectory.exchange import Feedback

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "webhooks"
EXAMPLE = yaml.safe_load((ROOT / "examples" / "webhooks" / "headrace.yaml").read_text())
SECRET = "a-secret-of-this-test"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("webhooks")
    # The key's id stands in the settings, so it must be there first.
    from proxy.clients.keys import KeyRegistry

    key = KeyRegistry.load(home / "keys.json").create(
        tenant_id="acme", app_id="shop", environment="ci", purposes=("train_rl",)
    )
    (home / "secret").write_text(SECRET)
    hooks = [
        {**hook, "secret": {"file": str(home / "secret")}, "client_key": key.key.key_id}
        for hook in EXAMPLE["gateway"]["webhooks"]
    ]
    hooks.append({**hooks[0], "name": "orphan", "client_key": "0" * 12})
    score = {"when": "score", "id": "session", "name": "score", "value": "score"}
    hooks.append({**hooks[0], "name": "scores", "rules": [score]})
    with GatewayProcess(home, {"webhooks": hooks, "forward_port": None}) as running:
        yield running


def headers_of(sender: str, body: bytes) -> dict[str, str]:
    """Sign as the sender does."""
    now = str(int(time.time()))
    if sender in ("github", "orphan", "scores"):
        return {"x-hub-signature-256": "sha256=" + _hex(body), "x-github-delivery": "d-1"}
    if sender == "gitlab":
        return {"x-gitlab-token": SECRET, "x-gitlab-event": "Pipeline Hook"}
    if sender == "zendesk":
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        digest = hmac.new(SECRET.encode(), moment.encode() + body, sha256).digest()
        return {
            "x-zendesk-webhook-signature": b64encode(digest).decode(),
            "x-zendesk-webhook-signature-timestamp": moment,
        }
    return {
        "x-slack-request-timestamp": now,
        "x-slack-signature": "v0=" + _hex(b"v0:" + now.encode() + b":" + body),
    }


def _hex(signed: bytes) -> str:
    return hmac.new(SECRET.encode(), signed, sha256).hexdigest()


def send(gateway: GatewayProcess, sender: str, event: Any, **headers: str) -> httpx.Response:
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return httpx.post(
        f"{gateway.url}/headrace/v1/webhooks/{sender}",
        content=body,
        headers={**headers_of(sender, body), **headers},
        trust_env=False,
    )


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def counted(gateway: GatewayProcess) -> dict[tuple[str, str], float]:
    text = httpx.get(f"{gateway.admin}/metrics", trust_env=False).text
    pattern = r'^headrace_webhooks_total{outcome="(.*)",webhook="(.*)"} (.*)$'
    found = re.findall(pattern, text, re.MULTILINE)
    return {(hook, outcome): float(number) for outcome, hook, number in found}


@pytest.mark.parametrize(
    ("sender", "event", "target", "body"),
    [
        (
            "github",
            "github_check_run",
            "s-42",
            {"name": "ci_passed", "value": 1.0, "label": "unit tests", "source_kind": "verifier",
             "source": "webhook:github", "observed_at": "2026-05-15T15:24:40+00:00"},
        ),
        (
            "github",
            "github_push",
            "s-42",
            {"name": "kept", "value": 0.0, "label": "reverted", "source_kind": "human_implicit",
             "source": "webhook:github", "observed_at": "2026-05-16T09:02:10+02:00"},
        ),
        (
            "gitlab",
            "gitlab_pipeline",
            "s-42",
            {"name": "ci_passed", "value": 0.0, "source_kind": "verifier", "source": "webhook:gitlab"},
        ),
        (
            "zendesk",
            "zendesk_status_changed",
            "s-42",
            {"name": "resolved", "value": 0.0, "label": "reopened", "source_kind": "human_implicit",
             "source": "webhook:zendesk", "observed_at": "2026-01-08T10:12:07.672717+00:00"},
        ),
        (
            "slack",
            "slack_reaction_added",
            "slack:C123ABC456:1360782400.498405",
            {"name": "thumb", "value": 1.0, "source_kind": "human_explicit", "source": "webhook:slack",
             "observed_at": "2013-02-13T19:13:24+00:00"},
        ),
    ],
)  # fmt: skip
def test_an_event_becomes_feedback_about_its_session(
    gateway: GatewayProcess, sender: str, event: str, target: str, body: dict[str, Any]
) -> None:
    answer = send(gateway, sender, golden(event))
    assert (answer.status_code, answer.json()) == (200, {"accepted": 1})
    (said,) = gateway.records()
    assert isinstance(said, Feedback)
    assert (said.target_kind, said.target_id, said.body) == ("session", target, body)
    assert (said.client.tenant_id, said.client.app_id) == ("acme", "shop")
    assert said.client.purposes == ("train_rl",)


def test_an_event_that_is_sent_again_counts_once(gateway: GatewayProcess) -> None:
    event = golden("github_check_run")
    for delivery in ("d-1", "d-2"):
        send(gateway, "github", event, **{"x-github-delivery": delivery})
    first, second = gateway.records(2)
    assert isinstance(first, Feedback)
    assert isinstance(second, Feedback)
    assert first.feedback_id == second.feedback_id


@pytest.mark.parametrize(
    ("sender", "event", "outcome"),
    [
        ("github", {"zen": "Keep it logically awesome.", "hook_id": 1}, "unknown"),
        ("github", {**golden("github_check_run"), "action": "created"}, "unknown"),
        ("github", {"commits": [], "ref": "refs/heads/main"}, "unknown"),
        ("github", {"commits": [{"message": "Revert \"by hand\""}]}, "left_out"),
        ("github", {"action": "completed", "check_run": {"conclusion": "success"}}, "left_out"),
        ("gitlab", {"object_kind": "pipeline", "object_attributes":
                    {"ref": "agent/s-1", "status": "running"}}, "left_out"),
        ("gitlab", {"object_kind": "note"}, "unknown"),
        ("zendesk", {"type": "zen:event-type:ticket.status_changed", "detail": {"external_id": "s"},
                     "event": {"previous": "NEW", "current": "OPEN"}}, "unknown"),
        ("zendesk", {"type": "zen:event-type:ticket.status_changed", "event": 5}, "unknown"),
        ("slack", {"type": "event_callback", "event": {"type": "reaction_added", "reaction": "eyes",
                   "item": {"type": "message", "channel": "C", "ts": "1.2"}}}, "left_out"),
        ("slack", [1, 2], "unknown"),
        ("github", b"{", "not_json"),
        ("github", b"[" * 100_000, "not_json"),
        ("scores", b'{"session": "s-1", "score": 1%s}' % (b"0" * 400), "left_out"),
        ("scores", b'{"session": "s-1", "score": 1%s}' % (b"0" * 5000), "not_json"),
        ("scores", b'{"session": "s-1", "score": NaN}', "left_out"),
        ("scores", b'{"session": "\\ud800", "score": "much"}', "left_out"),
    ],
)  # fmt: skip
def test_what_no_rule_fits_or_names_nobody_has_no_effect(
    gateway: GatewayProcess, sender: str, event: Any, outcome: str
) -> None:
    before = counted(gateway).get((sender, outcome), 0.0)
    answer = send(gateway, sender, event)
    assert (answer.status_code, answer.json()) == (200, {"accepted": 0})
    assert counted(gateway)[sender, outcome] == before + 1


def test_a_time_that_utc_lacks_is_left_out(gateway: GatewayProcess) -> None:
    event = golden("github_check_run")
    check = {**event["check_run"], "completed_at": "9999-12-31T23:59:59-14:00"}
    answer = send(gateway, "github", {**event, "check_run": check})
    assert (answer.status_code, answer.json()) == (200, {"accepted": 1})


def test_slacks_question_is_answered(gateway: GatewayProcess) -> None:
    event = {"token": "x", "challenge": "3eZbrw1a", "type": "url_verification"}
    assert send(gateway, "slack", event).json() == {"challenge": "3eZbrw1a"}


def test_who_did_not_sign_is_refused(gateway: GatewayProcess) -> None:
    event = golden("github_check_run")
    for sender, header in (
        ("github", "x-hub-signature-256"),
        ("gitlab", "x-gitlab-token"),
        ("zendesk", "x-zendesk-webhook-signature"),
        ("slack", "x-slack-signature"),
    ):
        before = counted(gateway).get((sender, "refused"), 0.0)
        assert send(gateway, sender, event, **{header: "v0=0"}).status_code == 401
        assert counted(gateway)[sender, "refused"] == before + 1
    old = str(int(time.time()) - 3600)
    assert send(gateway, "slack", event, **{"x-slack-request-timestamp": old}).status_code == 401
    assert SECRET not in gateway.log.read_text()


def test_what_is_no_webhook_is_refused(gateway: GatewayProcess) -> None:
    assert send(gateway, "github2", {}).status_code == 404
    assert httpx.get(f"{gateway.url}/headrace/v1/webhooks/github").status_code == 405
    assert send(gateway, "orphan", {}).status_code == 401
    assert send(gateway, "github", b" " * (4 * 1024 * 1024 + 1)).status_code == 413


RULE = {"when": "a", "id": "b", "name": "n", "value": "c"}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"when": "a =="}, "when\n.*not a JMESPath expression"),
        ({"id": "nosuch(a)["}, "id\n.*not a JMESPath expression"),
        ({"match": "("}, "match\n.*not a regular expression"),
        ({"match": "abc"}, "exactly one group"),
        ({"value": ""}, "one of: value, label, rationale"),
        ({"value": "", "label": "x", "values": {"a": 1}}, "values belong to value"),
        ({"when": ""}, "needs when and id"),
        ({"target": "user"}, "target"),
        ({"nosuch": 1}, "nosuch"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, Any], text: str) -> None:
    hook = {"name": "x", "sender": "github", "secret": {"env": "X"}, "client_key": "0" * 12}
    with pytest.raises(ValueError, match=text):
        GatewayConfig.model_validate({"webhooks": [{**hook, "rules": [{**RULE, **rule}]}]})


def test_two_webhooks_have_two_names_and_no_secret_in_the_settings() -> None:
    hook = {
        "name": "x",
        "sender": "github",
        "secret": {"env": "X"},
        "client_key": "0" * 12,
        "rules": [RULE],
    }
    with pytest.raises(ValueError, match="two webhooks have the same name"):
        GatewayConfig.model_validate({"webhooks": [hook, hook]})
    with pytest.raises(ValueError, match="secret"):
        GatewayConfig.model_validate({"webhooks": [{**hook, "secret": "plain"}]})


def test_a_missing_secret_stops_the_start(tmp_path: Path) -> None:
    hook = {"name": "x", "sender": "github", "secret": {"env": "NO_SUCH_VARIABLE"},
            "client_key": "0" * 12, "rules": [RULE]}  # fmt: skip
    with (
        pytest.raises(AssertionError, match="webhook x: credential: environment variable NO_SUCH"),
        GatewayProcess(tmp_path, {"webhooks": [hook], "forward_port": None}),
    ):
        pass
