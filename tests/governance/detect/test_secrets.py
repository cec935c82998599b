"""Secrets are dropped, whatever stands around them; code about secrets stays."""

import random
import string

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


_DRAW = random.Random(20)  # noqa: S311 - made-up secrets
_KINDS = {
    "hex": string.hexdigits[:16],
    "low": string.ascii_lowercase + string.digits,
    "any": string.ascii_letters + string.digits,
    "url": string.ascii_letters + string.digits + "-_",
    "cap": string.ascii_uppercase + string.digits,
    "num": string.digits,
}


def _drawn(kind: str, length: int) -> str:
    """Return a made-up secret: it begins and ends with letters, and has digits."""
    made = "".join(_DRAW.choices(_KINDS[kind], k=length))
    return made if kind == "num" else f"a7{made[2:-2]}4c" if kind != "cap" else f"A7{made[2:-2]}4C"


def _uuid() -> str:
    return "-".join(_drawn("hex", length) for length in (8, 4, 4, 4, 12))


TOKEN_IN_ADDRESS = [
    ("https://hooks.slack.com/services/T02AB3C4D/B05EF6G7H/{}", _drawn("any", 24)),
    ("https://hooks.slack.com:443/services/T02AB3C4D/B05EF6G7H/{}", _drawn("any", 24)),
    ("https://hooks.slack.com/triggers/T02AB3C4D/5512345678901/{}", _drawn("hex", 32)),
    ("https://hooks.slack.com/workflows/T02AB3C4D/A05EF6G7H/412345678901234567/{}", _drawn("any", 24)),
    ("https://discord.com/api/webhooks/1012345678901234567/{}", _drawn("url", 68)),
    ("https://canary.discord.com/api/v10/webhooks/1012345678901234567/{}", _drawn("url", 68)),
    ("https://discordapp.com/api/webhooks/1012345678901234567/{}/slack", _drawn("url", 68)),
    ("https://acme.webhook.office.com/webhookb2/{}", f"{_uuid()}@{_uuid()}/IncomingWebhook/{_drawn('hex', 32)}/{_uuid()}"),
    ("https://outlook.office.com/webhook/{}", f"{_uuid()}@{_uuid()}/IncomingWebhook/{_drawn('hex', 32)}/{_uuid()}"),
    ("https://prod-07.westeurope.logic.azure.com:443/workflows/x/triggers/manual/paths/invoke?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={}", _drawn("url", 43)),
    ("https://hooks.zapier.com/hooks/catch/1234567/{}/", _drawn("low", 7)),
    ("https://mcp.zapier.com/api/mcp/s/{}/mcp", _drawn("any", 72)),
    ("https://actions.zapier.com/mcp/sk-ak-{}/sse", _drawn("any", 26)),
    ("https://hook.eu1.make.com/{}", _drawn("low", 32)),
    ("https://hook.integromat.com/{}", _drawn("low", 32)),
    ("https://eu1.make.com/mcp/api/v1/u/{}/sse", _uuid()),
    ("https://api.telegram.org/bot5012345678:{}/sendMessage", "AAF" + _drawn("url", 32)),
    ("https://api.telegram.org/file/bot5012345678:{}/photos/file_7.jpg", "BBF" + _drawn("url", 32)),
    ("https://chat.googleapis.com/v1/spaces/AAAAxyz/messages?threadKey=deploys&token={}", _drawn("url", 43) + "%3D"),
    ("https://maker.ifttt.com/trigger/door_opened/with/key/{}", _drawn("url", 43)),
    ("https://{}.m.pipedream.net", "eo" + _drawn("low", 13)),
    ("https://mcp.pipedream.net/{}/slack", _uuid()),
    ("https://acme.app.n8n.cloud/webhook/{}", _uuid()),
    ("https://flows.example.org/webhook-test/{}", _uuid()),
    ("https://webhook.site/{}", _uuid()),
    ("https://chat.example.org/hooks/{}", _drawn("low", 26)),
    ("https://rocket.example.org/hooks/64f0a1b2c3d4e5f60718293a/{}", _drawn("any", 43)),
    ("https://open.feishu.cn/open-apis/bot/v2/hook/{}", _uuid()),
    ("https://api.netlify.com/build_hooks/{}", _drawn("hex", 24)),
    ("https://calendar.google.com/calendar/ical/team%40example.org/private-{}/basic.ics", _drawn("hex", 32)),
    ("https://mainnet.infura.io/v3/{}", _drawn("hex", 32)),
    ("https://{}@o4501234.ingest.sentry.io/4505678", _drawn("hex", 32)),
    ("https://{}@dev.azure.com/acme/shop/_git/shop", _drawn("low", 52)),
    ("postgresql://postgres.abcdefghij:{}@aws-0-eu-central-1.pooler.supabase.com:6543/postgres", _drawn("any", 16)),
    ("postgres://neondb_owner:npg_{}@ep-cool-1.eu-central-1.aws.neon.tech/neondb?sslmode=require", _drawn("any", 12)),
    ("mongodb+srv://app:{}@cluster0.ab1cd.mongodb.net/?retryWrites=true", _drawn("any", 16)),
    ("rediss://default:{}@eu1-frank-1.upstash.io:6379", _drawn("any", 32)),
    ("https://b.s3.amazonaws.com/o?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature={}", _drawn("hex", 64)),
    ("https://storage.googleapis.com/b/o?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Signature={}", _drawn("hex", 256)),
    ("https://acct.blob.core.windows.net/c/o.pdf?sv=2022-11-02&se=2026-01-01T00%3A00Z&sr=b&sp=r&sig={}", _drawn("any", 43) + "%3D"),
    ("https://d1.cloudfront.net/o.mp4?Expires=1767225600&Signature={}&Key-Pair-Id=K2", _drawn("any", 40) + "~-_" + _drawn("any", 20)),
    ("https://cdn.discordapp.com/attachments/1/2/a.png?ex=65a&is=65b&hm={}&", _drawn("hex", 64)),
    ("https://app.example.org/reset-password/{}", _drawn("url", 32)),
    ("https://app.example.org/#/reset/{}", _drawn("any", 32)),
    ("https://app.example.org/accounts/password/reset/MQ/{}/", f"c7x1k9-{_drawn('hex', 32)}"),
    ("GET /password_reset/{} HTTP/1.1", _drawn("hex", 40)),
    ("https://app.example.org/users/invite/{}", _uuid()),
    ("https://app.example.org/invitations/accept/{}", _drawn("url", 22)),
    ("https://mail.example.org/unsubscribe/{}", _uuid()),
    ("https://app.example.org/auth/magic-link/{}?next=/", _drawn("url", 43)),
    ("https://app.example.org/verify-email/{}", f"{_drawn('any', 22)}.{_drawn('url', 6)}.{_drawn('url', 27)}"),
    ("https://join.slack.com/t/acme/shared_invite/zt-{}", f"{_drawn('low', 9)}-{_drawn('url', 22)}"),
    ("https://app.example.org/cb?code={}&scope=email", f"4/0A{_drawn('url', 70)}"),
    ("https://app.example.org/cb?state=x&code={}", f"0.AX{_drawn('url', 60)}.{_drawn('url', 60)}"),
    ("https://app.example.org/cb?code={}", _drawn("hex", 20)),
    ("https://acme.azurewebsites.net/api/notify?code={}", _drawn("url", 54) + "=="),
    ("https://acme.firebaseapp.com/__/auth/action?mode=resetPassword&oobCode={}", _drawn("url", 54)),
    ("https://app.example.org/x?reset_token={}", _drawn("url", 700)),
]  # fmt: skip


@pytest.mark.parametrize(("address", "secret"), TOKEN_IN_ADDRESS, ids=lambda one: one[:40])
@pytest.mark.parametrize(
    "around", ["{}", "see {} .", 'curl -X POST "{}" -d x', "[it]({})", "URL={}\n", '{{"url": "{}"}}', "<a href='{}'>"]
)  # fmt: skip
def test_secrets_in_addresses(address: str, secret: str, around: str) -> None:
    written = address.format(secret)
    after = text(around.format(written))
    assert secret not in after
    assert secret[2:-2] not in after
    beside = around.partition("{}")[0]
    assert after.startswith(beside.replace("{{", "{"))


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/acme/shop/commit/9f8a7b6c5d4e3f2a1b0c9f8a7b6c5d4e3f2a1b0c",
        "https://github.com/acme/verify/commit/9f8a7b6c5d4e3f2a1b0c9f8a7b6c5d4e3f2a1b0c",
        "https://github.com/acme/shop/blob/main/src/hooks/useAuthenticatedSession2Factor.ts",
        "https://github.com/acme/shop/tree/main/src/hooks/use-paginated-orders-v2-with-cache",
        "https://github.com/modelcontextprotocol/servers/tree/main/src/mcp/server-filesystem-2024-11-25",
        "git@github.com:acme/shop.git",
        "https://api.example.org/v1/webhooks/550e8400-e29b-41d4-a716-446655440000",
        "https://api.example.org/orders/550e8400-e29b-41d4-a716-446655440000/confirm",
        "https://api.example.org/mcp/tools/list",
        "https://api.example.org/services/billing/invoices/2024",
        "https://dashboard.example.org/webhooks/we_1NxyzAbCdEfGh2IjKlMnOpQr",
        "https://cdn.example.org/assets/index-9f8a7b6c5d4e3f2a.js",
        "https://cdn.example.org/img/2024/05/summer-sale-banner-v2-1200x628.png",
        "/app/node_modules/.cache/babel/9f8a7b6c5d4e3f2a1b0c9f8a7b6c5d4e.json",
        "docs/reset-password/how-to-reset-your-password-in-2024.md",
        "feature/reset-password/SHOP-1234-add-token-expiry-2",
        "GET /api/v2/reset-password/template-for-2024-customers HTTP/1.1",
        "https://app.example.org/invite/team-members-to-your-workspace",
        "https://discord.com/developers/docs/resources/webhook",
        "https://hooks.slack.com/services/",
        "https://api.telegram.org/bot{token}/sendMessage",
        "https://maker.ifttt.com/trigger/{event}/with/key/{key}",
        "https://app.example.org/search?q=code&sort_key=created_at&page=2",
        "https://app.example.org/items?code=SUMMER24&color=red#section-2",
        "https://b.s3.amazonaws.com/list?prefix=2024/05/&key=uploads/2024/05/12/report.pdf",
        "http://localhost:5678/webhook/orders",
        "/webhook/stripe",
    ],
)
def test_ordinary_addresses_stay(address: str) -> None:
    for around in ("{}", "see {} for it", '{{"url": "{}"}}'):
        assert text(around.format(address)) == around.format(address)


IN_SESSIONS = [
    ("AGE-SECRET-KEY-1{}", _drawn("cap", 58)),
    ("airtable pat{}", f"{_drawn('any', 14)}.{_drawn('hex', 64)}"),
    ("atlassian ATATT3xFfGF0{}", _drawn("url", 160)),
    ("ntn_{}", _drawn("any", 46)),
    ("notion secret_{}", _drawn("any", 43)),
    ("sbp_{}", _drawn("hex", 40)),
    ("sb_secret_{}", _drawn("any", 31)),
    ("pscale_pw_{}", _drawn("any", 43)),
    ("tskey-auth-{}", f"{_drawn('any', 12)}-{_drawn('any', 32)}"),
    ("PMAK-{}", f"{_drawn('hex', 24)}-{_drawn('hex', 34)}"),
    ("NRAK-{}", _drawn("cap", 27)),
    ("pat-na1-{}", _uuid()),
    ("glc_{}", _drawn("any", 80)),
    ("app:$6${}:19000:0:99999:7:::", f"{_drawn('any', 12)}${_drawn('any', 86)}"),
    ("hash $2b$12${} of it", _drawn("any", 53)),
    ("$argon2id$v=19$m=65536,t=3,p=4${}", f"{_drawn('any', 22)}${_drawn('any', 43)}"),
    ("curl -H 'Authorization: {}' https://x.test", _drawn("low", 36)),
    ("Authorization: SSWS {}", "00" + _drawn("any", 40)),
    ("curl -b 'session={}; theme=dark' https://x.test", _drawn("any", 40)),
    ("env:\n  - name: API_TOKEN\n    value: \"{}\"\n", _drawn("any", 24)),
    ('"name": "DB_PASSWORD",\n      "value": "{}"', "Trxuaim73%jx"),
    ("Key         Value\n---         -----\npassword    {}\nusername    app\n", "Trxuaim73%jx"),
    ('<input type="password" name="pw" value="{}">', "Trxuaim73%jx"),
    ("FERNET={}", _drawn("url", 43) + "="),
    ("ENCRYPTION_KEY={}", _drawn("any", 43) + "="),
    ("//npm.internal/:_auth={}", _drawn("any", 20)),
    ('sql.Open("mysql", "app:{}@tcp(db:3306)/shop")', "Trxuaim73%jx"),
    ("WIFI:S:Home;T:WPA;P:{};;", "Trxuaim73%jx"),
    ("sqlplus app/{}@orcl", "Trxuaim73%jx"),
    ("snowsql -u x -p {}", "Trxuaim73%jx"),
    ("kubectl create secret generic db --from-literal=user=app --from-literal=value={}", "Trxuaim73%jx"),
    ("Seed phrase: {}", "abandon ability able about above absent absorb abstract absurd abuse access accident"),
    ("2FA setup key: {}", "xx56 r5c5 ngx3 mc3y t7bb dawu dfft v7l7"),
    ("$ kubectl get secret db -o jsonpath='{{.data.x}}' | base64 -d\n{}\n$ ", "Trxuaim73%jx"),
    ("$ gcloud secrets versions access latest --secret=db\n{}\n", "Trxuaim73%jx"),
    ("$ terraform output -raw db_password\n{}\n", "Trxuaim73%jx"),
    ("$ openssl rand -hex 32\n{}\n", _drawn("hex", 64)),
    ("token: \x1b[1;33m{}\x1b[0m", _drawn("any", 32)),
    ("\x1b[36mpassword\x1b[39m=\x1b[32m{}\x1b[39m", "Trxuaim73%jx"),
    (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{FORTY}AbCd {{}}@thinkpad", "obrandstetter"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "secret"), IN_SESSIONS)
def test_secrets_as_sessions_and_files_show_them(said: str, secret: str) -> None:
    after = text(said.format(secret))
    assert secret not in after
    assert secret[2:-2] not in after


@pytest.mark.parametrize(
    "said",
    [
        'token_ttl          768h\ntoken_renewable    true\ntoken_policies     ["default"]\n',
        "NAME        TYPE     DATA   AGE\ndb-secret   Opaque   2      5d\n",
        "PRIMARY_KEY=id\nCACHE_KEY=orders-by-customer-and-day-v2\n",
        "firmware fw_update_handler_version_2_final",
        'echo "$1$HOME/some/long/path/to/a/file"',
        '<input type="text" name="city" value="Rome">',
        'env:\n  - name: TOKEN_LIMIT\n    value: "4096"\n',
        "authorization: required",
        "\x1b[32mPASSED\x1b[0m tests/test_token.py::test_password",
        "sqlplus / as sysdba",
        "the recovery phrase is shown once",
        "$ terraform output -raw bucket_name\nacme-logs-2024\n",
        "$ kubectl get secrets\nNAME        TYPE     DATA   AGE\n",
        "$ echo aGVsbG8= | base64 -d\nhello-v2\n",
    ],
)
def test_what_sessions_show_beside_secrets_stays(said: str) -> None:
    assert text(said) == said
