"""Passwords go wherever they are told: labels, prose, command lines, other languages; code stays."""

import json

import pytest

from tests.governance.redaction_support import text, value

PASSWORDS = (
    "Password123!", "Password2024", "Secret123", "Secret!42x", "Example#99", "Hidden99!",
    "Token4711x", "NullPointer9!", "Yourmom1!", "Trueblue88", "Stringer7!", "Passw0rd!",
    "Hunter2x!", "summer2024", "Summer2024!", "P@ssw0rd", "a1b2c3", "12345678",
)  # fmt: skip
LETTERS = ("qwerty", "letmein", "correcthorsebattery", "trustnoone", "Drachenblut")


@pytest.mark.parametrize("password", [*PASSWORDS, *LETTERS])
@pytest.mark.parametrize(
    "around",
    [
        "password: {}",
        "password={}",
        'password="{}"',
        '{{"user": 1, "password": "{}"}}',
        "the password is {}",
        "The password is {}. Please change it.",
        "DB_PASSWORD={}",
        "export PGPASSWORD={}\npsql -h db.local",
        "PGPASSWORD='{}' psql -h db.local",
        "user: 1\npassword: {}\nport: 22",
        "login with maria / {}",
        "pwd {}",
        "user maria pw {}.",
        "(mdp {})",
        "tool --password {} --verbose",
        "tool --password={} --verbose",
        "mysql -u root -p{} shop",
        "mysqldump --single-transaction -uroot -p{} shop > dump.sql",
        "sshpass -p {} ssh deploy@web1",
        "sshpass -p '{}' scp a.txt deploy@web1:",
        "curl -u maria:{} https://api.host/x",
        "curl -sS --user 'maria:{}' https://api.host/x",
        "machine api.host login maria password {}",
        "https://u:{}@h/x",
        "Password:\n{}",
        "my password's {}",
        "<password>{}</password>",
        "new password -> {}",
        "Kennwort wurde auf {} gesetzt",
        "WLAN-Schlüssel: {}",
        "Le mot de passe est : {}",
        "clave del wifi: {}",
        "Hasło do wifi: {}",
        "пароль от wifi: {}",
        "비번: {}",
        "Das Passwort lautet {}",
        "Passwort: {}",
        "Kennwort: {}",
        "mot de passe : {}",
        "Le mot de passe est {}.",
        "contraseña: {}",
        "La contraseña es {}",
        "la password è {}",
        "senha: {}",
        "A senha é {}",
        "wachtwoord: {}",
        "Het wachtwoord is {}",
        "hasło: {}",
        "Hasło to {}",
        "пароль: {}",
        "密码：{}",
        "密码是{}",
        "パスワードは{}です",
        "パスワード: {}",
        "비밀번호: {}",
        "şifre: {}",
    ],
)
def test_passwords_go(password: str, around: str) -> None:
    assert password not in text(around.format(password))


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("redis-cli -h cache -a Winterfell9 ping", "Winterfell9"),
        ("docker login -u maria -p Winterfell9 registry.local", "Winterfell9"),
        ("ldapsearch -x -D cn=admin -w Winterfell9 -b dc=x", "Winterfell9"),
        ("sqlcmd -S db -U sa -P Winterfell9 -Q 'select 1'", "Winterfell9"),
        ("smbclient //nas/share -U maria%Winterfell9", "Winterfell9"),
        ("openssl pkcs12 -in a.p12 -passin pass:Winterfell9", "Winterfell9"),
        ("keytool -list -storepass Winterfell9 -keystore a.jks", "Winterfell9"),
        ("echo 'Winterfell9' | sudo -S apt update", "Winterfell9"),
        ("echo 'maria:Winterfell9' | sudo chpasswd", "Winterfell9"),
        ("wget --user=maria --password=Winterfell9 https://x/y", "Winterfell9"),
        ("zip -e -P Winterfell9 out.zip a", "Winterfell9"),
        ("unzip -P Winterfell9 out.zip", "Winterfell9"),
        ("7z x -pWinterfell9 out.7z", "Winterfell9"),
        ("net use z: \\\\nas\\x /user:maria Winterfell9", "Winterfell9"),
        ("htpasswd -bc .htpasswd maria Winterfell9", "Winterfell9"),
        ("db.local:5432:shop:maria:Winterfell9", "Winterfell9"),
        ("default login: maria password: Winterfell9", "Winterfell9"),
        ("credentials: maria / Winterfell9", "Winterfell9"),
        ("Zugangsdaten: maria / Winterfell9", "Winterfell9"),
        ("use password Winterfell9 for the staging box", "Winterfell9"),
        ("pwd Winterfell9", "Winterfell9"),
        ("https://maria:Winter@fell9@host/x", "fell9"),
        ("git clone https://maria:Winterfell9@git.host/x.git", "Winterfell9"),
    ],
)
def test_command_lines_and_pairs(line: str, secret: str) -> None:
    assert secret not in text(line)


@pytest.mark.parametrize(
    ("around", "words"),
    [
        ('password="{}"', "tr0ub4dor and three"),
        ("DB_PASSWORD='{}'", "My dog Rex 2019!"),
        ('passphrase: "{}"', "Blauer Himmel 99"),
        (r"{{\"password\": \"{}\"}}", "tr0ub4dor & three x"),
    ],
)
def test_a_quoted_password_of_several_words_goes_whole(around: str, words: str) -> None:
    assert text(around.format(words)) == around.format("<PASSWORD>")


def test_what_stands_around_a_password_stays() -> None:
    line = "mysql -u root -pWinterfell9 shop"
    assert text(line) == "mysql -u root -p<PASSWORD> shop"
    assert text("curl -u maria:Winterfell9 https://api.host/x").endswith(
        ":<PASSWORD> https://api.host/x"
    )
    assert text("Das Passwort lautet Winterfell9 seit heute.") == (
        "Das Passwort lautet <PASSWORD> seit heute."
    )


@pytest.mark.parametrize("password", PASSWORDS)
def test_values_of_json_stay_json(password: str) -> None:
    given = json.dumps({"password": password, "n": 1})
    assert json.loads(text(given)) == {"password": "<PASSWORD>", "n": 1}
    assert value({"db": {"password": password}}) == {"db": {"password": "<PASSWORD>"}}


@pytest.mark.parametrize(
    "kept",
    [
        "password: string",
        "password: str | None = None",
        "password: required",
        "password = password",
        "login(user, password=password)",
        "connect(host, password=pw, timeout=3)",
        "client = Client(username=name, password=secret)",
        "const { password } = req.body;",
        "password: hashedPassword,",
        "this.password = newPassword;",
        "api_key: YOUR_API_KEY",
        "password: your-password-here",
        "password: <your password>",
        "DB_PASSWORD=${DB_PASSWORD}",
        "DB_PASSWORD=changeme",
        "PASSWORD=%DB_PASSWORD%",
        "password=********",
        "password: xxxxxxxx",
        "password: [REDACTED]",
        "The password is incorrect.",
        "The password is too short",
        "the password is hashed with bcrypt",
        "Your password is expired, please reset it.",
        "Enter your password: ",
        "Forgot your password? Click here.",
        "Use the --password option to set it.",
        "tool --password PASSWORD --user USER",
        "tool --password <password>",
        "tool --password \"$DB_PASSWORD\"",
        "mysql -u root -p shop",
        "mkdir -p build/output && cp -pr a b",
        "ssh -p 2222 host",
        "docker run -p 8080:80 nginx",
        "curl -u $USER:$TOKEN https://x/y",
        "max_tokens: 4096",
        "password_min_length = 12",
        "tokens=1200 prompt_tokens=300",
        "for password in passwords: check(password)",
        "SELECT password FROM users WHERE id = :id",
        "Das Passwort ist falsch.",
        "Passwort vergessen?",
        "Bitte das Passwort eingeben: ",
        "Le mot de passe est incorrect.",
        "Mot de passe oublié ?",
        "La contraseña es obligatoria.",
        "A senha é muito curta.",
        "Hasło jest wymagane.",
        "Пароль: обязательное поле",
        "密码错误，请重试",
        "密码不能为空",
        "パスワードを入力してください",
        "chmod 600 ~/.netrc",
        "password hashing uses sha256 and pbkdf2",
        "Change password every 90 days.",
        'password: "must have 12 characters"',
        'password: "At least 8 characters, 1 digit"',
        "label password: 'Passwort vergessen? 2 Wege'",
    ],
)  # fmt: skip
def test_talk_and_code_about_passwords_stay(kept: str) -> None:
    assert text(kept) == kept


@pytest.mark.parametrize(
    "key", ["passwort", "mot de passe", "contraseña", "senha", "密码", "пароль"]
)
def test_keys_of_other_languages_tell_passwords(key: str) -> None:
    assert value({key: "WINTER2024"}) == {key: "<PASSWORD>"}


TOLD_AS_WORDS = (
    ("my pwd bluebottle doesnt work", "bluebottle"),
    ("mein Passwort Sternschnuppe geht nicht", "Sternschnuppe"),
    ("dass das Passwort Regenbogenforelle lautet", "Regenbogenforelle"),
    ("passwd=hunter", "hunter"),
    ("DB_PASSWORD=dragon", "dragon"),
    ("export SMTP_PASS=sunshine", "sunshine"),
    ("GET /login?user=bob&password=dragon&next=1", "dragon"),
    ("password is correct horse battery staple", "horse"),
    ("The passphrase is orbit-velvet-crane-noon.", "orbit-velvet"),
    ('password: "sunshine"', "sunshine"),
    ("password = 'dragon'", "dragon"),
    ('SMTP_PASS="moss and heather"', "moss"),
    ('{"password": "winter is coming soon"}', "winter"),
    ("openssl enc -aes-256-cbc -k plumbago -in a", "plumbago"),
    ("net user bob Zonneschijn /add", "Zonneschijn"),
    ("mysql -u root -pdragonfly shop", "dragonfly"),
    ("sshpass -p tangerine ssh a@b", "tangerine"),
    ("PGPASSWORD=lorikeet psql", "lorikeet"),
    ("curl -u admin:tamarind https://x", "tamarind"),
    ("htpasswd -b file bob sunflower", "sunflower"),
    ("https://bob:tamarind@host/x", "tamarind"),
    ("DEBUG smtp AUTH user=x pass=Buchfink", "Buchfink"),
    ("docker login -u ci -p marigold registry.example", "marigold"),
    ("redis-cli -a cinnamon ping", "cinnamon"),
    ("MYSQL_PWD=hyacinth mysqldump shop", "hyacinth"),
    ("passphrase: velvet orbit crane noon", "velvet"),
    ("identified by 'saltmarsh'", "saltmarsh"),
    ("ALTER USER bob WITH PASSWORD 'saltmarsh';", "saltmarsh"),
    ("Basic auth: user admin, password tangerine", "tangerine"),
    ("the password for staging is Chrysanthemum", "Chrysanthemum"),
    ("My password is sunshine", "sunshine"),
    ("pw: dragonfruit", "dragonfruit"),
    ('psql "host=db user=app password=lorikeet dbname=shop"', "lorikeet"),
    ("Server=db;Database=shop;User Id=app;Password=lorikeet;", "lorikeet"),
)


@pytest.mark.parametrize(("told", "password"), TOLD_AS_WORDS)
def test_plain_words_are_passwords_where_the_place_says_so(told: str, password: str) -> None:
    assert password not in text(told)


ABOUT_PASSWORDS = (
    "The password must be at least twelve characters long",
    "password reset",
    "Your password is required",
    "password: required",
    "password: string",
    "password=password",
    "PASSWORD=changeme",
    "DB_PASSWORD=${DB_PASSWORD}",
    'password: "string"',
    "password: <your password>",
    "connect(user=user, password=password)",
    "login(username, password=pw)",
    "The password is stored in a vault",
    "my password manager is Bitwarden",
    "the password policy is strict",
    "the password field is empty",
    "my password reset link is broken",
    "password: must be changed at next login",
    "passwd: password updated successfully",
    "mysql -u root -p shop",
    "net user /help",
    'openssl enc -k "$KEY" -in a',
    "password_hash = bcrypt.hash(password)",
    "if password == confirm:",
    "commit 9f2c1e7b4d0a8c6e5f3b2a1908d7c6b5a4f3e2d1",
    "pass=12 fail=3",
    "tests pass=true",
    "password: {type: string, minLength: 8}",
    "PASSWORD_RESET_URL=/reset",
    "secret: mysql-root-pass",
    "the password is not correct and must be reset",
    "Password is case sensitive",
    'password="$1"',
    "password: !vault",
    "MYSQL_PASSWORD_FILE=/run/secrets/pw",
    '"password": "Password"',
    '"password": "Mot de passe"',
    'password: "Enter your password"',
    "password = getpass()",
    'password=request.form["password"]',
    "pw = load(path)",
    "forgot password? click here",
    "password authentication failed for user",
    "PasswordAuthentication no",
    "password: str = Field(min_length=8)",
    "the passphrase is never written to disk",
    "das Passwort lautet anders als der Benutzername",
    "Das Passwort ist abgelaufen",
    "mot de passe oublié",
    "la contraseña es obligatoria",
    "PASSWORD_MIN_LENGTH=12",
    "spring.datasource.password=${PW}",
    "password sufficient pam_unix.so",
    "pwd prints the working directory",
    "run pwd inside the container",
    "the PWD environment variable",
    "the pwd builtin of bash",
    "the pwd module of Python",
    "$ pwd /home/build",
    "cd src && pwd && make",
    "pw useradd deploy",
    "ls -la; pwd; whoami",
    "password 12 of 30",
)


@pytest.mark.parametrize("said", ABOUT_PASSWORDS)
def test_what_is_said_about_passwords_stays(said: str) -> None:
    assert text(said) == said


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("wifi psk: Tr0mbone-Lake", "Tr0mbone-Lake"),
        ("[wlan0]\nssid=home\npsk=meadow7Fox!\n", "meadow7Fox!"),
        ('network={\n  ssid="den"\n  psk="horse garden 88"\n}', "horse garden 88"),
        ("ike psk = 9kLm!zQ4w", "9kLm!zQ4w"),
        ("pre-shared key: Xk29-zzPo", "Xk29-zzPo"),
        ("wpa_passphrase den Cobalt99river", "Cobalt99river"),
    ],
)
def test_keys_of_networks_go(given: str, key: str) -> None:
    assert key not in text(given)


@pytest.mark.parametrize(
    ("told", "password"),
    [
        ("Das Startpasswort lautet Winter-Kuchen-77.", "Winter-Kuchen-77"),
        ("Das FTP-Passwort, falls nötig: Fraesbank_8", "Fraesbank_8"),
        ("mot de passe provisoire fixé à « Automne!Lac17 »", "Automne!Lac17"),
        ("pw on the sticky note: Quokka-41-rot", "Quokka-41-rot"),
        ("The door code is 7719#", "7719"),
        ("gate code for deliveries 4471", "4471"),
        ("deliver to 12 Main St, buzzer code *4471", "4471"),
        ("Le nouveau code du cadenas est 4719", "4719"),
        ("Meine PUK (40882713) geht nicht", "40882713"),
    ],
)
def test_passwords_and_codes_told_in_prose_go(told: str, password: str) -> None:
    assert password not in text(told)


@pytest.mark.parametrize(
    "said",
    [
        "Password rules: see chapter 4",
        "the password page uses OAuth2 and PKCS12",
        "exit code 1234",
        "The GPIO pin 17 is high, pin 4 low",
        "error code E4021 at line 7",
    ],
)
def test_codes_of_things_stay(said: str) -> None:
    assert text(said) == said


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("my wifi pw is Gr33nTurtle#44 pls", "Gr33nTurtle#44"), ("mdp est Soleil!75", "Soleil!75"), ("memorable word 'Clementine7' and", "Clementine7"), ("Losungswort: Kirsche_42", "Kirsche_42"), ("gate code 4471.", "4471"), ("digicode 24B68", "24B68"), ("Türcode: 4471#", "4471#"),
        ("Haustürcode 4471", "4471"), ("code portail A4471", "A4471"), ("código de la puerta 4471", "4471"), ("codice del cancello: 4471", "4471"), ("kod do bramy 4471", "4471"),
        ("portkod 4471", "4471"), ("código do portão 4471", "4471"),
    ],
)  # fmt: skip
def test_codes_of_doors_and_short_words_for_a_password_go(said: str, code: str) -> None:
    assert code not in text(said)


@pytest.mark.parametrize(
    "kept",
    ["pw is /srv/app/releases/2026", "pwd is /srv/app2/releases/2026-11", "the pwd was ~/work/v2/src", "port code 8443", "entry code path: src/index.ts:4471", "memorable word required", "the pass is required", "pw is wrong", "port code 22 is open", "gate code review", "error code 24B", "the door code changed in May", "pass is slow"],
)  # fmt: skip
def test_what_is_said_of_codes_and_passwords_stays(kept: str) -> None:
    assert text(kept) == kept


@pytest.mark.parametrize("key", ["security_answer", "secretAnswer", "recovery_question_answer"])
def test_keys_tell_the_answer_to_a_question(key: str) -> None:
    assert "Biscuit" not in str(value({key: "Biscuit"}))


def test_keys_tell_a_maiden_name() -> None:
    assert "Quibodeau" not in str(value({"mothers_maiden_name": "Quibodeau"}))


@pytest.mark.parametrize("date", ["01JAN95", "1-Feb-1990", "12 Sept"])
def test_keys_tell_a_birth_however_it_is_written(date: str) -> None:
    assert date not in str(value({"dob": date}))
