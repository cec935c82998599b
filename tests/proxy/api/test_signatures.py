"""Each scheme against the example that its sender publishes, and against what is not signed."""

import hmac
import time
from base64 import b64encode

import pytest

from proxy.api.signatures import WINDOW_SECONDS, is_signed

GITHUB = (
    "github",
    "It's a Secret to Everybody",
    {
        "X-Hub-Signature-256": "sha256="
        "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    },
    b"Hello, World!",
    None,
)
STANDARD = (
    "standard",
    "whsec_plJ3nmyCDGBKInavdOK15jsl",
    {
        "webhook-id": "msg_loFOjxBNrRLzqYUf",
        "webhook-timestamp": "1731705121",
        "webhook-signature": "v1,bm9uZQ== v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
    },
    b'{"event_type":"ping","data":{"success":true}}',
    1731705121.0,
)
GITLAB_SIGNED = ("gitlab", *STANDARD[1:])
GITLAB_TOKEN = (
    "gitlab",
    "a-long-secret-token",
    {"X-Gitlab-Token": "a-long-secret-token"},
    b"{}",
    None,
)
SLACK = (
    "slack",
    "8f742231b10e8888abcd99yyyzzz85a5",
    {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    },
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    1531420618.0,
)
_ZENDESK_SECRET = "dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ=="
_ZENDESK_TIME = "2021-07-25T10:00:00Z"
_ZENDESK_BODY = b'{"say": "hello"}'
_ZENDESK_DIGEST = hmac.digest(
    _ZENDESK_SECRET.encode(), _ZENDESK_TIME.encode() + _ZENDESK_BODY, "sha256"
)
"""By the formula of its page, ``base64(HMACSHA256(TIMESTAMP + BODY))``: its example has no digest."""
ZENDESK = (
    "zendesk",
    _ZENDESK_SECRET,
    {
        "X-Zendesk-Webhook-Signature": b64encode(_ZENDESK_DIGEST).decode(),
        "X-Zendesk-Webhook-Signature-Timestamp": _ZENDESK_TIME,
    },
    _ZENDESK_BODY,
    1627207200.0,
)
ALL = [GITHUB, STANDARD, GITLAB_SIGNED, GITLAB_TOKEN, SLACK, ZENDESK]
type Example = tuple[str, str, dict[str, str], bytes, float | None]


def signed(
    example: Example,
    at: float | None,
    *,
    secret: str = "",
    body: bytes | None = None,
    **changed: str,
) -> bool:
    sender, own, headers, sent, moment = example
    fields = tuple(
        (name.encode(), changed.get(name.lower().replace("-", "_"), value).encode())
        for name, value in headers.items()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: at if at is not None else moment or 0.0)
        return is_signed(sender, secret or own, fields, sent if body is None else body)


@pytest.mark.parametrize("example", ALL, ids=lambda one: one[0])
def test_what_its_sender_signed_is_taken(example: Example) -> None:
    assert signed(example, None)


@pytest.mark.parametrize("example", ALL, ids=lambda one: one[0])
def test_another_secret_another_body_or_no_signature_is_refused(example: Example) -> None:
    sender, _, headers, body, moment = example
    assert not signed(example, None, secret="whsec_b3RoZXI=")
    if example is not GITLAB_TOKEN:
        assert not signed(example, None, body=body + b" ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: moment or 0.0)
        for gone in headers:
            fields = tuple((n.encode(), v.encode()) for n, v in headers.items() if n != gone)
            assert not is_signed(sender, example[1], fields, body)


@pytest.mark.parametrize(
    "example", [STANDARD, GITLAB_SIGNED, SLACK, ZENDESK], ids=lambda one: one[0]
)
def test_a_signature_is_good_for_five_minutes(example: Example) -> None:
    moment = example[4] or 0.0
    for off in (WINDOW_SECONDS - 1, -WINDOW_SECONDS + 1):
        assert signed(example, moment + off)
    for off in (WINDOW_SECONDS + 1, -WINDOW_SECONDS - 1):
        assert not signed(example, moment + off)


@pytest.mark.parametrize("when", ["", "yesterday", "1e999", "9" * 40, "-5", "2021-07-25T10:00:00"])
@pytest.mark.parametrize("example", [STANDARD, SLACK, ZENDESK], ids=lambda one: one[0])
def test_a_time_that_is_none_is_refused(example: Example, when: str) -> None:
    name = next(one for one in example[2] if "timestamp" in one.lower())
    assert not signed(example, None, **{name.lower().replace("-", "_"): when})


@pytest.mark.parametrize("secret", ["whsec_%%%", "whsec_"])
def test_a_secret_that_is_no_key_signs_nothing(secret: str) -> None:
    assert not signed(STANDARD, None, secret=secret)
    # Who knows that there is none could sign with it.
    headers = STANDARD[2]
    said = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + STANDARD[3]
    own = "v1," + b64encode(hmac.digest(b"", said, "sha256")).decode()
    assert not signed(STANDARD, None, secret=secret, webhook_signature=own)
