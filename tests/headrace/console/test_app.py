"""The console: who may see which page, what is refused, and what a page makes of hostile content."""

import json
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from starlette.datastructures import Headers
from starlette.routing import Route

from headrace.app.settings import ConsoleSettings, RoleGrant
from headrace.console.app import ConsoleApplication
from headrace.console.assets import SCRIPTS, address, integrity
from headrace.console.guard import RateLimit
from headrace.console.page import Console
from headrace.console.pages import PAGES
from headrace.console.sessions import SessionStore
from headrace.console.sign_in import COOKIE
from headrace.console.users import ROLES, SECRET_HEADER, TrustedProxies, User, local_user
from tests.headrace.console.conftest import HOST, HOSTILE, PLACES, SAME, client_of
from tests.support.full_disk import full_disk

EVERYBODY = {"viewer", "reviewer", "operator", "privacy", "trainer", "admin"}
MAY_SEE = {
    "/home": EVERYBODY,
    "/trajectories": EVERYBODY,
    "/trajectories/{trajectory_id}": {"reviewer", "privacy", "trainer", "admin"},
    "/compare": {"reviewer", "privacy", "trainer", "admin"},
    "/review": {"reviewer", "privacy", "admin"},
    "/approvals": EVERYBODY,
    "/approvals/{approval_id}": {"reviewer", "operator", "privacy", "admin"},
    "/policy": EVERYBODY,
    "/privacy": {"privacy", "admin"},
    "/requests": {"operator", "privacy", "trainer", "admin"},
    "/models": EVERYBODY,
    "/models/{name}/{version}": EVERYBODY,
    "/evolve": EVERYBODY,
    "/evolve/{decision_id}": EVERYBODY,
    "/runs": EVERYBODY,
    "/runs/{run_id}": EVERYBODY,
    "/artefacts": EVERYBODY,
    "/artefacts/{artifact}/{version}": {"reviewer", "privacy", "trainer", "admin"},
    "/trials": EVERYBODY,
    "/trials/{trial_id}": EVERYBODY,
    "/lineage": EVERYBODY,
    "/progress": {"operator", "privacy", "trainer", "admin"},
    "/sql": {"privacy", "trainer", "admin"},
    "/tables": EVERYBODY,
    "/account": EVERYBODY,
}
"""Which role may see which page; a route that does not stand here has no business to exist."""
MAY_SEND = {
    "/approvals/{approval_id}": {"operator", "admin"},
    "/trajectories/{trajectory_id}": {"reviewer", "admin"},
    "/review": {"reviewer", "admin"},
    "/policy": {"privacy", "admin"},
    "/privacy": {"privacy", "admin"},
    "/requests": {"operator", "privacy", "trainer", "admin"},
    "/models": {"operator", "trainer", "admin"},
    "/evolve/{decision_id}": {"operator", "trainer", "admin"},
    "/sql": {"privacy", "trainer", "admin"},
    "/account": EVERYBODY,
}
"""Which role may send a page's form; the others take none."""
FILES = {("/sql", "csv"), ("/sql", "parquet"), ("/policy", "yaml")}
"""What pages give out beside themselves, to the same people."""
OPEN = {"/", "/sign-in", "/sign-in/provider", "/sign-in/callback", "/sign-out"}
"""Routes for people who are not signed in."""
EVERY_TENANT = {
    "/policy", "/models", "/models/{name}/{version}", "/evolve", "/evolve/{decision_id}", "/runs",
    "/runs/{run_id}", "/artefacts", "/artefacts/{artifact}/{version}", "/trials", "/trials/{trial_id}",
    "/lineage",
}  # fmt: skip
"""Pages of what belongs to no tenant."""


def place(path: str) -> str:
    for name, value in PLACES.items():
        path = path.replace(name, value)
    return path


def without_scripts(page: str) -> str:
    """Return a page without the three scripts that each page has."""
    for name in SCRIPTS:
        tag = f'<script src="{address(name)}" integrity="{integrity(name)}" defer></script>'
        assert page.count(tag) == 1
        page = page.replace(tag, "")
    return page


def audited(console: Console) -> list[tuple[str, str, str]]:
    return [(one.actor, one.action, one.subject) for one in console.running.audit.entries()]


def test_each_route_stands_in_the_table(console: Console) -> None:
    routes = ConsoleApplication(console).starlette.routes
    paths = {route.path for route in routes if isinstance(route, Route)}
    files = {f"{path}.{suffix}" for path, suffix in FILES}
    assert paths == OPEN | set(MAY_SEE) | {f"{path}.json" for path in MAY_SEE} | files
    assert {page.path for page in PAGES} == set(MAY_SEE)


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_role_sees_its_pages_and_no_others(console: Console, role: str) -> None:
    for path, roles in MAY_SEE.items():
        for tenant in ("*", "acme"):
            if role in roles and (tenant == "*" or path not in EVERY_TENANT):
                continue
            client = client_of(console, (role, tenant), name=f"no-{role}-{tenant}")
            assert client.get(place(path)).status_code == 403, (path, role, tenant)
            assert client.get(f"{place(path)}.json").status_code == 403, (path, role, tenant)
            for file in (f"{path}.{suffix}" for of, suffix in FILES if of == path):
                assert client.get(file).status_code == 403, (file, role, tenant)


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_role_sends_its_forms_and_no_others(console: Console, role: str) -> None:
    assert {page.path: set(page.senders) for page in PAGES if page.senders} == MAY_SEND
    client = client_of(console, (role, "*"), name=f"sends-{role}")
    for path in MAY_SEE:
        if role in MAY_SEND.get(path, ()):
            continue
        sent = client.post(place(path), data={"do": "try"}, headers=SAME).status_code
        assert sent == (403 if path in MAY_SEND else 405), (path, role)


@pytest.mark.parametrize("path", MAY_SEE)
def test_a_page_and_its_twin_have_the_same_data(console: Console, path: str) -> None:
    client = client_of(console, ("admin", "*"))
    page = client.get(place(path))
    twin = client.get(f"{place(path)}.json")
    assert (page.status_code, twin.status_code) == (200, 200), page.text + twin.text
    assert twin.json()
    assert "<script" not in without_scripts(page.text)
    assert set(re.findall(r"(?:src|href|action)=\"([^/\"#?][^\"]*)\"", page.text)) == set()


@pytest.mark.parametrize("path", MAY_SEE)
def test_nobody_sees_a_page_without_a_session(console: Console, path: str) -> None:
    client = client_of(console)
    answer = client.get(place(path))
    assert (answer.status_code, answer.headers["location"][:9]) == (303, "/sign-in?")
    assert client.get(f"{place(path)}.json").status_code == 401


def test_a_tenant_has_a_wall(console: Console) -> None:
    client = client_of(console, ("reviewer", "acme"))
    found = client.get("/trajectories.json").json()["trajectories"]
    assert {one["tenant_id"] for one in found} == {"acme"}
    assert client.get("/trajectories.json?tenant=globex").status_code == 403
    assert client.get("/trajectories.json?tenant=*").status_code == 403
    assert client.get("/trajectories/t00005.json").status_code == 404
    roles = (("viewer", "globex"), ("admin", "acme"))
    mixed = client_of(console, *roles, name="mixed")
    assert mixed.get("/trajectories/t00005?tenant=globex").status_code == 403


def test_hostile_content_stays_text(console: Console) -> None:
    client, hostile = client_of(console, ("reviewer", "*")), " ".join(HOSTILE)
    for view in ("", "?view=steps"):
        page = without_scripts(client.get(f"/trajectories/t00004{view}").text)
        assert not re.search(r"<(?!/?(?:html|head|meta|title|link|body|a|header|nav|ul|ol|li|form|span|button|main|h1|h2"
                             r"|p|dl|div|dt|dd|small|details|summary|code|pre|mark|table|caption|thead|tbody|tr|th|td"
                             r"|figure|svg|rect|figcaption|strong|label|textarea|input|!doctype)\b)", page)  # fmt: skip
        assert "<a href=javascript" not in page
        assert not re.search(r"<[a-z]+[^>]*\son[a-z]+=", page)
        tags = "".join(re.findall(r"<[^>]*>", page))
        assert "evil.example" not in tags
        acted_upon = {"hx-ignore", "hx-boost:inherited", "hx-sync:inherited"}
        assert set(re.findall(r"\b(?:data-)?hx-[a-z:-]+", tags)) == acted_upon
    page = client.get("/trajectories/t00004").text
    assert '<mark title="redacted">&lt;EMAIL_ADDRESS_ab12cd34&gt;</mark>' in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u202e" not in page
    shown = client.get("/trajectories", params={"q": hostile}).text
    assert not [text for text in HOSTILE if "<" in text and text in shown]


def test_a_reading_of_content_is_an_audit_event(console: Console) -> None:
    client_of(console, ("reviewer", "acme"), name="rena").get("/trajectories/t00002")
    assert ("rena", "content.read", "t00002") in audited(console)
    client = client_of(console, ("trainer", "acme"), name="tom")
    client.get("/sql", params={"query": "select parts from conversation"})
    assert ("tom", "lake.answered") in {entry[:2] for entry in audited(console)}


def test_no_page_shows_what_was_said_without_an_audit_event(console: Console) -> None:
    client = client_of(console, ("admin", "acme"), ("admin", "*"), name="reader")
    shown = set()
    for path in MAY_SEE:
        for suffix in ("", ".json"):
            asked = {"tenant": "acme", "query": "select parts from conversation"}
            asked = {
                name: asked[name]
                for name in (("tenant", "query") if path == "/sql" else ("tenant",))
            }
            before = len(audited(console))
            text = client.get(f"{place(path)}{suffix}", params=asked).text
            if "lamps" in text:
                shown.add(path)
                noted = {entry[:2] for entry in audited(console)[before:]}
                assert noted & {("reader", "content.read"), ("reader", "lake.answered")}, path
    content = {
        "/trajectories/{trajectory_id}",
        "/review",
        "/sql",
        "/artefacts/{artifact}/{version}",
    }
    assert shown == content


def test_a_list_goes_on_where_the_page_before_ended(console: Console) -> None:
    client = client_of(console, ("viewer", "many"))
    first = client.get("/trajectories.json").json()
    second = client.get("/trajectories.json", params={"after": first["after"]}).json()
    seen = [one["trajectory_id"] for one in first["trajectories"] + second["trajectories"]]
    assert seen == [f"t{number:05d}" for number in range(154, 99, -1)]
    assert second["after"] is None
    assert client.get("/trajectories.json?after=nonsense").status_code == 400


def test_sql_answers_and_refuses_as_the_sql_server_does(console: Console) -> None:
    client = client_of(console, ("trainer", "acme"))
    data = client.get("/sql.json", params={"query": "select 1 as one, '<b>' as two;"}).json()
    assert (data["columns"], data["rows"]) == (["one", "two"], [[1, "<b>"]])
    refused = client.get("/sql", params={"query": "select * from read_csv('/etc/passwd')"})
    assert refused.status_code == 400


def test_a_query_is_saved_by_a_name_for_the_tenants_data(console: Console) -> None:
    tina = client_of(console, ("trainer", "acme"), name="tina")
    sent = {"do": "save", "name": "spend", "query": "select 1 as one;"}
    page = tina.post("/sql", params={"query": "select 1 as one"}, data=sent, headers=SAME).text
    assert 'href="/sql?query=select+1+as+one"' in page
    other = client_of(console, ("privacy", "acme"), name="petra")
    (seen,) = other.get("/sql.json").json()["saved"]
    assert (seen["name"], seen["query"], seen["saved_by"]) == ("spend", "select 1 as one", "tina")
    stranger = client_of(console, ("trainer", "globex"))
    assert stranger.get("/sql.json").json()["saved"] == []
    gone = {"do": "forget", "name": "spend"}
    assert stranger.post("/sql", data=gone, headers=SAME).status_code == 400
    assert other.post("/sql.json", data=gone, headers=SAME).json()["saved"] == []
    assert {("tina", "query.saved", "spend"), ("petra", "query.forgotten", "spend")} <= {
        *audited(console)
    }
    for wrong in ({"do": "save", "name": "No Name", "query": "x"}, {"do": "x"}):
        assert tina.post("/sql", data=wrong, headers=SAME).status_code == 400


def test_two_trajectories_stand_side_by_side(console: Console) -> None:
    client = client_of(console, ("reviewer", "acme"), name="rosa")
    data = client.get("/compare.json", params={"one": "t00001", "other": "t00002"}).json()
    assert [one["trajectory"]["trajectory_id"] for one in data["sides"]] == ["t00001", "t00002"]
    page = client.get("/compare", params={"one": "t00001", "other": "t00005"}).text
    assert "What do 1 lamps cost?" in page
    assert "What do 5 lamps cost?" not in page, "another tenant's"
    noted = audited(console)
    assert {("rosa", "content.read", "t00001"), ("rosa", "content.read", "t00002")} <= {*noted}
    assert ("rosa", "content.read", "t00005") not in noted


def test_an_answer_goes_out_as_a_file_and_has_a_chart(console: Console) -> None:
    client = client_of(console, ("trainer", "acme"))
    query = "SELECT trajectory_id, steps FROM trajectories ORDER BY trajectory_id"
    page = client.get("/sql", params={"query": query})
    assert page.text.count("<rect") == 4
    file = client.get("/sql.csv", params={"query": query})
    assert file.headers["content-disposition"] == 'attachment; filename="answer.csv"'
    assert file.text.splitlines()[:2] == ['"trajectory_id","steps"', '"t00001",2']
    table = parquet.read_table(BytesIO(client.get("/sql.parquet", params={"query": query}).content))
    assert table.column("steps").to_pylist() == [2, 2, 2, 2]
    assert client.get("/sql.csv", params={"query": "drop table steps"}).status_code == 400


def test_a_token_signs_in_once(console: Console) -> None:
    token = console.sessions.issue_token(local_user("root"))
    client = client_of(console)
    assert token in client.get(f"/sign-in?token={token}").text
    signed = client.post("/sign-in", data={"token": token, "next": "//evil.example"}, headers=SAME)
    assert (signed.status_code, signed.headers["location"]) == (303, "/home")
    cookie = signed.headers["set-cookie"]
    assert cookie.startswith("__Host-headrace=")
    assert {"HttpOnly", "Secure", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    session = cookie.partition("=")[2].partition(";")[0]
    kept = console.running.home.sessions.read_bytes()
    assert session.encode() not in kept
    assert token.encode() not in kept
    assert client.get("/account.json").json()["name"] == "root"
    assert client.post("/sign-in", data={"token": token}, headers=SAME).status_code == 403
    assert client.post("/sign-out", headers=SAME).status_code == 303
    client.cookies.set(COOKIE, session)
    assert client.get("/account.json").status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": HOST}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"origin": HOST}, 200),
        ({"origin": "https://localhost.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 403),
        ({"sec-fetch-site": "same-origin", "host": "evil.example"}, 403),
    ],
)
def test_what_another_page_sends_is_refused(
    console: Console, headers: dict[str, str], status: int
) -> None:
    client = client_of(console, ("viewer", "*"))
    assert client.post("/account", data={"session": "x"}, headers=headers).status_code == status


def test_a_session_ends_by_itself_and_by_its_name(tmp_path: Path) -> None:
    now = [1000.0]
    store = SessionStore(
        tmp_path / "s.sqlite", idle_seconds=100, longest_seconds=250, clock=lambda: now[0]
    )
    user = User("ida", frozenset({("viewer", "acme")}))
    first, second = store.begin(user), store.begin(user)
    now[0] += 90
    assert store.user_of(first) == user
    now[0] += 90
    assert (store.user_of(first), store.user_of(second)) == (user, None)
    now[0] += 80
    assert store.user_of(first) is None, "its longest time is over, though it was used"
    third = store.begin(user)
    (one,) = store.list(user)
    assert store.revoke(one.session, replace(user, name="oda")) is None
    assert store.revoke(one.session, replace(user, authority="https://id.example")) is None
    assert store.revoke(one.session, user) == "ida"
    assert store.user_of(third) is None


def test_no_power_cut_brings_a_session_back_that_was_ended(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "s.sqlite", idle_seconds=100, longest_seconds=250)
    store.end(store.begin(User("ida", frozenset({("viewer", "acme")}))))
    # SQLite would delete it and not sync the folder: there again, it would undo the last transaction.
    assert (tmp_path / "s.sqlite-journal").read_bytes() == b""


def test_who_has_the_same_name_is_somebody_else(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "s.sqlite", idle_seconds=100, longest_seconds=250)
    roles = frozenset({("viewer", "acme")})
    ida, other = (User("ida", roles, "https://id.example", key) for key in ("17", "18"))
    session = store.begin(ida)
    assert store.list(other) == ()
    (one,) = store.list(ida)
    assert store.revoke(one.session, other) is None
    assert store.user_of(session) is not None
    assert store.revoke(one.session, ida) == "ida"
    assert store.user_of(session) is None


def test_who_is_signed_in_stays_so_on_a_full_disk(tmp_path: Path) -> None:
    now = [1000.0]
    store = SessionStore(
        tmp_path / "s.sqlite", idle_seconds=100, longest_seconds=900, clock=lambda: now[0]
    )
    user = User("ida", frozenset({("viewer", "acme")}))
    session = store.begin(user)
    now[0] += 60
    with full_disk():
        assert store.user_of(session) == user
    now[0] += 39
    assert store.user_of(session) == user


@pytest.mark.parametrize("path", ["/home", "/approvals", "/home.json", "/approvals/x"])
def test_a_full_disk_is_told_and_is_no_fault_of_headrace(console: Console, path: str) -> None:
    client = client_of(console, ("viewer", "*"), ("operator", "*"))
    with full_disk():
        answer = client.get(path)
    assert answer.status_code in (200, 404, 503)
    assert "fault of Headrace" not in answer.text
    if answer.status_code == 503:
        assert "disk" in answer.text


def test_a_page_that_looks_again_ends_with_its_session_and_reads_no_content(
    console: Console, tmp_path: Path
) -> None:
    now = [1000.0]
    store = SessionStore(
        tmp_path / "s.sqlite", idle_seconds=100, longest_seconds=1000, clock=lambda: now[0]
    )
    client = client_of(replace(console, sessions=store), ("admin", "*"), name="lara")
    trial = place("/trials/{trial_id}")
    read = len(audited(console))
    for _ in range(9):
        now[0] += 10
        for path in ("/home", "/approvals", trial):
            page = client.get(path, params={"looking": 1}, headers={"hx-request": "true"})
            assert page.status_code == 200
            assert f'hx-get="{path}?looking=1"' in page.text
            assert "looking" not in "".join(re.findall(r'href="[^"]*"', page.text))
    assert len(audited(console)) == read
    now[0] += 10
    ended = client.get("/home", params={"looking": 1}, headers={"hx-request": "true"})
    assert (ended.status_code, ended.headers["hx-refresh"], ended.text) == (401, "true", "")
    assert client.get("/home").headers["location"] == "/sign-in?next=%2Fhome"


def test_no_page_reads_content_of_itself(console: Console) -> None:
    client = client_of(console, ("admin", "*"))
    looking = {path for path in MAY_SEE if 'hx-trigger="every' in client.get(place(path)).text}
    assert looking == {"/home", "/approvals", "/trials/{trial_id}"}
    assert not [page.path for page in PAGES if page.path in looking and page.shows_content]


def test_a_role_that_a_group_has_lost_is_lost_at_once(tmp_path: Path) -> None:
    def store(*grants: RoleGrant) -> SessionStore:
        return SessionStore(
            tmp_path / "s.sqlite", idle_seconds=100, longest_seconds=250, grants=grants
        )

    came = User("ida", frozenset(), "https://id.example", "17", frozenset({"leads"}))
    grant = RoleGrant(group="leads", role="reviewer", tenant="acme")
    session = store(grant).begin(came)
    found = store(grant).user_of(session)
    assert found is not None
    assert found.roles == {("reviewer", "acme")}
    assert found.key == "17"
    left = store().user_of(session)
    assert left is not None
    assert left.roles == frozenset()


def test_an_administrator_sees_and_ends_everybodys_sessions(console: Console) -> None:
    console.sessions.begin(User("maria", frozenset({("viewer", "acme")})))
    boss = client_of(console, ("admin", "*"), name="boss")
    sessions = boss.get("/account.json").json()["sessions"]
    (marias,) = [one["session"] for one in sessions if one["name"] == "maria"]
    of_one_tenant = client_of(console, ("admin", "acme"), name="chief")
    assert {one["name"] for one in of_one_tenant.get("/account.json").json()["sessions"]} == {
        "chief"
    }
    sent = {"data": {"session": marias}, "headers": SAME}
    assert of_one_tenant.post("/account.json", **sent).json()["ended"] is False
    assert boss.post("/account.json", **sent).json()["ended"] is True
    assert ("boss", "console.session_ended", "maria") in audited(console)


def test_two_people_are_two_where_one_authority_tells_them_apart() -> None:
    ida = User("ida", frozenset(), "https://id.example", "17")
    assert not ida.is_known_to_differ(replace(ida, name="ida.b"))
    assert not ida.is_known_to_differ(User("ida2", frozenset()))
    assert ida.is_known_to_differ(replace(ida, key="18"))
    assert not local_user("root").is_known_to_differ(local_user("root"))
    assert local_user("root").is_known_to_differ(local_user("oda"))


@pytest.mark.parametrize("coding", ["utf-8", "latin-1"])
def test_a_proxy_names_people_and_groups_with_any_letters(
    monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    monkeypatch.setenv("PROXY_SECRET", "s" * 16)
    grant = RoleGrant(group="Pr\u00fcferinnen", role="reviewer")
    trusted = TrustedProxies(
        ConsoleSettings(proxies=("10.0.0.0/8",), proxy_secret_env="PROXY_SECRET", groups=(grant,))
    )
    sent = {
        SECRET_HEADER: "s" * 16,
        "x-forwarded-user": "\u00c4nne",
        "x-forwarded-groups": "Pr\u00fcferinnen",
    }
    raw = [(name.encode(), value.encode(coding)) for name, value in sent.items()]
    found = trusted.user("10.1.2.3", Headers(raw=raw))
    assert found is not None
    assert (found.name, found.roles) == ("\u00c4nne", {("reviewer", "*")})


def test_a_proxy_is_believed_by_its_address_and_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_SECRET", "s" * 32)
    settings: Any = ConsoleSettings(
        proxies=("10.0.0.0/8",),
        proxy_secret_env="PROXY_SECRET",
        groups=(RoleGrant(group="reviewers", role="reviewer", tenant="acme"),),
    )
    proxies = TrustedProxies(settings)
    headers = [(b"x-forwarded-user", b"ida"), (b"x-forwarded-groups", b"staff, reviewers")]
    secret = SECRET_HEADER.encode()

    def user(address: str, *more: tuple[bytes, bytes]) -> User | None:
        return proxies.user(address, Headers(raw=[*headers, *more]))

    assert user("10.1.2.3", (secret, b"s" * 32)) == User(
        "ida", frozenset({("reviewer", "acme")}), "proxy", groups=frozenset({"staff", "reviewers"})
    )
    assert user("11.1.2.3", (secret, b"s" * 32)) is None
    assert user("10.1.2.3") is None
    assert user("10.1.2.3", (secret, b"s" * 31)) is None
    # A proxy that adds its header behind the client's own says two things.
    for twice in ((b"x-forwarded-user", b"oda"), (b"x-forwarded-groups", b"leads"), (secret, b"x")):
        assert user("10.1.2.3", (secret, b"s" * 32), twice) is None
    proxies = TrustedProxies(ConsoleSettings())
    assert user("127.0.0.1", (secret, b"")) is None


def test_what_somebody_looked_for_in_vain_stands_in_no_audit_log(console: Console) -> None:
    client = client_of(console, ("admin", "*"), name="vera")
    wanted = "vera.lind@corp-mail.example"
    assert client.get(f"/trajectories/{wanted}").status_code == 404
    assert client.get(f"/approvals/{wanted}").status_code == 404
    form = {"do": "try", "step": wanted}
    assert client.post("/policy", data=form, headers=SAME).status_code == 404
    assert wanted not in console.running.home.audit.joinpath("audit.jsonl").read_text()
    # An error may quote what was read.
    wrong = "SELECT CAST(parts AS INTEGER) FROM messages"
    assert client.get("/sql", params={"query": wrong}).status_code == 400
    assert ("vera", "content.read", "/sql") in audited(console)


def test_who_asks_too_often_waits_and_others_do_not(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.console.app.RateLimit", lambda *_: RateLimit(2, 1e9))
    client = client_of(console, ("viewer", "*"), name="vic")
    assert [client.get("/account.json").status_code for _ in range(4)] == [200, 200, 429, 429]
    assert "wait a little" in client.get("/account").text
    other = client_of(console, ("viewer", "*"), name="val")
    assert other.get("/account").status_code == 200


def test_attempts_to_sign_in_are_counted(console: Console) -> None:
    client = client_of(console)
    statuses = [
        client.post("/sign-in", data={"token": "wrong"}, headers=SAME).status_code
        for _ in range(12)
    ]
    assert statuses == [403] * 10 + [429] * 2
    assert json.dumps(audited(console)).count("console.refused") >= 10
