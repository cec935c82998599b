"""Accounts of people on machines go, service accounts and pieces of programs stay."""

import pytest

from tests.governance.redaction_support import text, value

LINES = (
    "/home/{}/work", "/Users/{}/Desktop/a.txt", "C:\\Users\\{}\\Documents", "C:/Users/{}/x", "/mnt/c/Users/{}/x",
    "file:///Users/{}/a.log", "-rw-r--r-- 1 {} staff 12 Mar  1 10:11 a", "drwxr-xr-x  2 www-data {} 4096 Mar 1 up",
    "uid=1000({}) gid=1000({}) groups=1000({}),27(sudo)", "{}@web-01:~$ ls", "[{}@db ~]$ ls", "{}@mac src % ls",
    "ssh {}@10.0.0.4", "scp a.txt {}@host.internal:/tmp", "$ su - {}", "$ chown -R {}:{} /srv ", "$ whoami\n{}",
    "{}   pts/0   2024-05-02 08:11", "{}:x:1000:1000:,,,:/srv:/bin/sh", "sshd[1]: Accepted publickey for {} from 10.0.0.4",
    "sshd[1]: Invalid user {} from 10.0.0.4", "sudo: {} : TTY=pts/1 ; PWD=/", "CRON[7]: ({}) CMD (sync)",
    '10.0.0.4 - {} [02/May/2024:08:11:00 +0200] "GET / HTTP/1.1" 200', "DB_USER={}", "username: {}", "login: {}",
    "$ cd ~{}/src", "[~{}] please look", "* Fix cache by @{} in https://code.test/pull/7", "CORP\\{} logged on", "r42 | {} | 2024-05-02 08:11:00",
    "SamAccountName : {}", "User name                    {}", "$ sudo useradd -m -c \"x y\" {}", "acct=\"{}\" exe=/usr/sbin/sshd", "Merge pull request #7 from {}/cache",
    "user={} action=read", "user '{}' exceeded its quota", "Merge branch '{}/cache' into main",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("account", ["mgonzalez", "jsmith", "hmueller", "kasia_n"])
def test_accounts_of_people_go(line: str, account: str) -> None:
    assert account not in text(line.replace("{}", account))


@pytest.mark.parametrize("line", [line for line in LINES if "USER" not in line])
@pytest.mark.parametrize("account", ["root", "www-data", "postgres", "ubuntu", "runner"])
def test_accounts_of_services_stay(line: str, account: str) -> None:
    assert account in text(line.replace("{}", account))


@pytest.mark.parametrize(
    "kept",
    [
        "DB_USER=app_user", "handle=file.close", "user=current_user.id", "login = lambda: api.login()",
        "/home/runner/work/core", "/home/node/app/index.js:12", "/Users/Shared/data.json",
        "C:\\Users\\Public\\Documents", "GET https://shop.test/home/catalogue HTTP/1.1",
        "connect(user=account, host=db)", "username: string", "user: {type: string}",
        "sudo: pam_unix(sudo:session): session opened for user root", "git config user.name",
    ],
)  # fmt: skip
def test_programs_stay(kept: str) -> None:
    assert text(kept) == kept


def test_keys_tell_accounts() -> None:
    assert str(value({"username": "mgonzalez"})).count("mgonzalez") == 0
    assert value({"actor": "lbonneville"}) != {"actor": "lbonneville"}
    assert value({"actor": "system", "owner": "platform"}) == {
        "actor": "system",
        "owner": "platform",
    }
    assert value({"user": "system", "login": "postgres"}) == {"user": "system", "login": "postgres"}


@pytest.mark.parametrize(
    "line",
    [
        "@{} can you take this?", "cc @{}", "curl -u {}:secret99x https://x.test", "machine x.test login {} password p4ssw0rd",
        "htpasswd -b /etc/nginx/.htpasswd {} p4ssw0rd", "grep {} /etc/passwd", "last | grep {}", "log in as user okay, login {}",
        "{} 2211     1  0 10:11 ?        00:00:02 python app.py", "#4412 opened by {}", "ALTER USER {} WITH LOGIN;",
        "users:\n  - name: {}\n    sudo: ALL=(ALL) ALL",
    ],
)  # fmt: skip
def test_accounts_that_are_told_or_called_go(line: str) -> None:
    assert "mgonzalez" not in text(line.replace("{}", "mgonzalez"))


@pytest.mark.parametrize(
    "line",
    [
        "PAY-1  Assignee: {}  Updated: 2h ago", "reviewer={}", "# TODO({}): drop this", "# CODEOWNERS\n/search/  @{}", "Benutzer {} hat die Datei geöffnet",
        "(compte {})", "created_by: {}", "{} requested changes 3 hours ago", "last-deployed-by: {}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("account", ["hkobayashi", "marta.nowak", "tpettersson"])
def test_accounts_made_of_a_name_go_where_a_role_stands(line: str, account: str) -> None:
    assert account not in text(line.replace("{}", account))


@pytest.mark.parametrize(
    "kept",
    [
        "owner: platform-team", "author: hashicorp", "reviewer: default", "TODO(docs): explain", "assignee: none", "the user marks it done",
    ],
)  # fmt: skip
def test_roles_of_teams_and_companies_stay(kept: str) -> None:
    assert text(kept) == kept


@pytest.mark.parametrize(
    ("said", "account"),
    [
        ("pls reset my account sandy_beaches_88", "sandy_beaches_88"), ("mein Konto ist blumen_wiese", "blumen_wiese"), ("mi usuario es perrito77, gracias", "perrito77"),
        ("my game login dark_horse.21?", "dark_horse.21"), ("mon compte soleil_75", "soleil_75"),
    ],
)  # fmt: skip
def test_what_somebody_calls_their_account_goes(said: str, account: str) -> None:
    assert account not in text(said)


@pytest.mark.parametrize(
    "kept",
    ["my account settings", "her account manager", "my user v2", "my login step_2 fails", "mein Konto gesperrt", "my account is over-drawn", "my account doesn't load"],
)  # fmt: skip
def test_what_else_is_said_of_an_account_stays(kept: str) -> None:
    assert text(kept) == kept


def test_an_account_that_was_found_goes_everywhere() -> None:
    listing = (
        "drwxr-x--- 2 tferncliffe tferncliffe 4096 Nov  3 10:15 tferncliffe\nmv a tferncliffe/"
    )
    assert "tferncliffe" not in text(listing)


@pytest.mark.parametrize(
    "kept",
    [
        "ps aux | grep gunicorn", "@dataclass\nclass A: ...", "npm i @angular/core", "@media (max-width: 600px)", "@Override public void run()",
        "cc @channel", "@param name the name", "@pytest.fixture", "curl -u $USER:$PASS https://x.test", "@here can you restart it?", "created by default", "opened by mistake", "DROP ROLE readonly;", "services:\n  - name: checkout\n    image: x",
    ],
)  # fmt: skip
def test_decorators_packages_and_teams_stay(kept: str) -> None:
    assert text(kept) == kept


def test_all_who_are_called_together_go() -> None:
    after = text("cc @mgonzalez @quillb-w, @tarnow-k and @oxbelle.")
    assert not any(account in after for account in ("mgonzalez", "quillb", "tarnow", "oxbelle"))


@pytest.mark.parametrize(
    "kept",
    ["Utilisateur : quelle différence entre les deux ?", "Usuario: el pedido no llega", "Benutzer: kann ich das ändern?"],
)  # fmt: skip
def test_a_sentence_behind_a_role_is_no_account(kept: str) -> None:
    assert text(kept) == kept


def test_several_words_under_a_key_of_accounts_are_a_name() -> None:
    after = text('{"author": "Marisol Etcheverry"}\nask marisol')
    assert "PERSON" in after
    assert "marisol" not in after.lower()
