"""Secrets are dropped, whatever stands around them; code about secrets stays."""

import pytest

from tests.governance.redaction_support import text

FORTY = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6kL9n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"api_key=sk-{FORTY} for it", "api_key=<API_KEY> for it"),
        (f"Our API key is sk-proj-{FORTY}.", "Our API key is <API_KEY>."),
        (f"Use the token ghp_{FORTY[:36]} now", "Use the token <API_KEY> now"),
        (f"mine: github_pat_{FORTY} ok", "mine: <API_KEY> ok"),
        ("key AKIAIOSFODNN7EXAMPLE!", "key <API_KEY>!"),
        (f"x hr_abcd1234_{FORTY} y", "x <API_KEY> y"),
        ("Authorization: Bearer abcdefghij0123456789XYZ", "Authorization: Bearer <API_KEY>"),
        ('DB_PASS = "KfX3813SO9l"', 'DB_PASS = "<PASSWORD>"'),
        ("password: Tr0ub4dor&3", "password: <PASSWORD>"),
        ("the password is hunter2 ok", "the password is <PASSWORD> ok"),
        ("https://bob:pw12@host/x", "https://<URL_CREDENTIALS>@host/x"),
        ("DSN postgres://app:s3cret@db.host:5432/x here", "DSN <CONNECTION_STRING> here"),
        (
            "-----BEGIN PRIVATE KEY-----\nMIIB\nVgIBADAN\n-----END PRIVATE KEY-----\nend",
            "<PRIVATE_KEY>\nend",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIBVgIBADAN cut off", "<PRIVATE_KEY>"),
        (
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P next",
            "<JWT> next",
        ),
    ],
)
def test_secrets(before: str, after: str) -> None:
    assert text(before) == after


@pytest.mark.parametrize(
    "code",
    [
        "password = getpass.getpass()",
        "token = self.next_token()",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "password: str | None = None",
        'parser.add_argument("--token", required=True)',
        "secret = config.secret",
        "PASSWORD=${DB_PASSWORD}",
        "api_key: YOUR_API_KEY",
        "for token in tokens: yield token",
        "sk-learn-contrib-package-name",
    ],
)
def test_code_about_secrets_stays(code: str) -> None:
    assert text(code) == code
