"""Passwords: what is told behind a label, in prose, in pairs and on command lines, in many languages."""

import re

from governance.detect.rules.rule import Rule
from governance.names.words import common

_WORDS_THAT_STAND_FOR_ONE = (
    r"your?s?|my|our|the|an?|this|that|some|any|new|old|current|real|actual|strong|secure|secret|secrets|"
    r"example|sample|test|testing|dummy|fake|default|changeme|changeit|change|replaceme|replace|insert|"
    r"enter|put|set|add|fill|me|in|it|with|here|placeholder|redacted|removed|masked|filtered|none|null|"
    r"nil|true|false|undefined|unset|empty|blank|string|str|text|bytes|bool|boolean|int|number|value|"
    r"optional|required|todo|tbd|hidden|password|passwords|passwd|pwd|passphrase|passcode|pass|token|"
    r"tokens|key|keys|api|access|auth|client|db|database|hash|hashed|plain|raw|input|field|param|arg|"
    r"passwort|kennwort|contrase\xf1a|contrasena|senha|wachtwoord|haslo|parola|ihr|dein|ton|votre|tu|su|"
    r"sua|uw|jouw|twoje"
)
_PLACEHOLDER = re.compile(
    r"(?i)(?:"
    rf"[\W_]*(?:(?:{_WORDS_THAT_STAND_FOR_ONE})[\W_]*){{1,8}}"
    r"|[\W_]*x{3,}[\Wx_]*|[*\u2022\u25cf#]{3,}.{0,4}|[.\u2026]{1,3}.*|<[^>]*>?|\[[^\]]*\]?"
    r"|%[a-z_]*%?|[@:&][a-z_]+|\{[^}]*\}?"
    r")\Z"
)
"""Values that stand for a password: the whole of them, for passwords begin with any word."""
_EXPRESSION = re.compile(
    r"\$\{|\$[A-Za-z_]+$|\$\(|%\(|\{\{|(?:env|os|process|self|this|cls|req|request|config|settings|args|ctx|"
    r"options|params|props|state|form|data|secrets|vars|var|values|inputs|event|session|user|app)[.\[(]"
    r"|[A-Za-z_][\w.]*[(\[]|[A-Za-z_]+(?:\.[A-Za-z_]+)+\Z|->|=>|\*\*"
)
_ALGORITHM = re.compile(
    r"(?i)(?:sha-?\d{1,3}|md[45]|base-?\d\d|p?bkdf\d|bcrypt\d?|argon\di?d?|scrypt\d?|utf-?\d{1,2}|oauth\d|"
    r"mfa\d?|\dfa|aes-?\d{1,3}\w*|rsa-?\d{1,4}|x509|http2?|ipv\d|v?\d+(?:\.\d+)+\w*|\d+[a-z]{1,6}|"
    r"ntlmv?\d|tls\d*|kerberos\d?|pkcs\d{1,2}|python\d|win\d\d)\Z"
)
"""What is said of passwords and has digits: how they are kept, versions, "8chars"."""
_SAID = """
    hashed encrypted salted expired compromised leaked rotated masked plaintext alphanumeric invalidated
    misspelled mistyped bcrypt argon scrypt kerberos mandatory nullable weaker stronger insecure rejected
    accepted unchanged forgotten obsolete unreadable breached guessable reusable stale unencrypted
    falsch ungültig abgelaufen korrekt richtig leer zu unsicher sicher gesperrt vergessen erforderlich
    notwendig nötig schwach stark kurz lang gespeichert verschlüsselt geändert zurückgesetzt bekannt
    nicht nur jetzt noch schon auch sehr immer eingeben ändern zurücksetzen unbekannt vorhanden
    incorrecte incorrect invalide valide vide obligatoire requis expiré oublié faible fort trop court
    correct modifié réinitialisé chiffré stocké nécessaire différent identique pas bien toujours
    incorrecta incorrecto inválida inválido válida obligatoria obligatorio requerida requerido
    caducada expirada débil fuerte corta larga muy demasiado necesaria cifrada guardada olvidada errónea
    incorreta incorreto obrigatória fraca forte curta longa muito expirou esquecida necessária errada
    errata errato scaduta scaduto obbligatoria obbligatorio debole sbagliata valida valido non troppo
    onjuist ongeldig verlopen verplicht zwak sterk te vergeten gewijzigd nodig niet correct geldig
    błędne nieprawidłowe wymagane za puste wygasło jest nie słabe poprawne
    верный неверный не истёк устарел пустой слишком обязательное
    """
_SAID_OF_ONE = frozenset(_SAID.split())
"""What passwords are, in prose."""
_ENDS = ("ed", "d", "ing", "s", "ly", "er", "able")
_NUMBER = re.compile(r"\d\d")
_PARTS = re.compile(r"[^\W\d_]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])")


def stands_for_one(value: str) -> bool:
    """Whether a value is no password but holds the place of one, or an expression of a program."""
    return _PLACEHOLDER.match(value) is not None or _EXPRESSION.match(value) is not None


def _is_word(word: str) -> bool:
    plain, known = word.lower(), common()
    if plain in known or plain in _SAID_OF_ONE:
        return True
    return any(plain.endswith(end) and plain.removesuffix(end) in known for end in _ENDS)


def _letters(value: str) -> bool:
    """Whether letters alone may be a password: no word that is said of passwords, no identifier."""
    if not 5 <= len(value) <= 40 or len(set(value.lower())) < 4 or value.isupper():
        return False
    return not all(map(_is_word, _PARTS.findall(value)))


def _mixed(value: str) -> bool:
    """Whether there are letters and digits, and it is no version or algorithm."""
    if _ALGORITHM.match(value):
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and len(set(value)) >= 4


def _marked(value: str) -> bool:
    """Whether marks that words do not have stand between letters."""
    marks = sum(not char.isalnum() and char not in "._-/:'\u2019()" for char in value)
    return marks > 0 and any(map(str.isalpha, value)) and len(set(value)) >= 5


def labelled(value: str) -> bool:
    """Whether what stands behind "password:" is one."""
    if stands_for_one(value):
        return False
    if value.isdigit():
        return len(value) >= 4
    return _mixed(value) or (_letters(value) if value.isalpha() else _marked(value))


def told(value: str) -> bool:
    """Whether what stands behind "the password is" is one."""
    if stands_for_one(value):
        return False
    if value.isdigit():
        return len(value) >= 6
    return _mixed(value) or (_letters(value) if value.isalpha() else _marked(value))


def quoted(value: str) -> bool:
    """Whether what stands in quotation marks behind "password:" is one of several words."""
    words = value.split()
    if len(words) < 2 or stands_for_one(value):
        return False
    if any(len(word) >= 4 and _mixed(word) for word in words):
        return True
    return _NUMBER.search(value) is not None and not all(map(_is_word, _PARTS.findall(value)))


def strong(value: str) -> bool:
    """Whether a value has the shape of a password without any mark before it."""
    if len(value) < 6 or stands_for_one(value) or not _mixed(value) or "/" in value or "=" in value:
        return False
    capitals = any(map(str.isupper, value)) and any(map(str.islower, value))
    return capitals or _marked(value) or len(value) >= 8


def option(value: str) -> bool:
    """Whether what stands behind an option that takes a password is one."""
    if value.startswith("-") or stands_for_one(value) or value.replace("_", "").isupper():
        return False
    return not (value.isalpha() and value.islower() and _is_word(value))


_CUE = (
    r"(?:pass(?:word|wd|phrase|code|wort|ord)|pwd|kennwort|mots? de passe|contrase(?:\xf1|n)a|senha|"
    r"palavra[ \-]passe|wachtwoord|haslo|has\xe0(?:o|a|em|u)|l\xf6senord|adgangskode|salasana|parola d'ordine|jelsz\xf3|heslo|kata sandi|\xe0ifre(?:m|niz|si)?|"
    r"(?:w-?lan|wi-?fi)[ \-](?:schl\xfcssel|key|code)|(?:code|cl\xe9|clave|chave|chiave|klucz|sleutel) (?:du |del |do |de |della |van )?(?:wi-?fi|wlan))"
)
_SHORT_CUE = r"(?:pass|pwd?|psw|mdp|ww|clave|parola|sifre|pin)"
_NEEDS = (
    "passw", "passp", "passc", "passord", "pwd", "kennwort", "de passe", "contrase", "senha",
    "palavra", "wachtwoord", "haslo", "senord", "adgangskode", "salasana", "parola", "jelsz",
    "heslo", "kata sandi", "has\xe0", "\xe0ifre", "wlan", "w-lan", "wifi", "wi-fi",
)  # fmt: skip
_SHORT_NEEDS = ("pass", "pw", "psw", "mdp", "ww", "clave", "parola", "sifre", "pin")
_WIDE_CUE = (
    "(?:пароль|пароля|пароли|пароль доступа|密码|密碼|口令|パスワード|暗証番号|비밀번호|패스워드|비번|암호|"
    "كلمة المرور|كلمة السر|סיסמה|סיסמא|पासवर्ड|รหัสผ่าน|κωδικός πρόσβασης|κωδικός|hasło|şifre|parolă|mật khẩu|"
    "lozinka|slaptažodis|parole)"
)
_WIDE_IS = (
    "(?:是|为|為|：|:|=|は|が|은|는|이|가|to|jest|brzmi|это|—|-|هي|הוא|היא|है|คือ|είναι|là|este)"
)
_WIDE_OF = r"(?: (?:от|для|к|до|do|od) [^:=\n]{1,20}| (?:שלי|שלך|שלנו|мой|наш))?"

_OF = (
    r"(?: (?:f\xfcr|fuer|for|of|to|on|pour|de|du|del|della|do|da|para|per|voor|van|dla|zum|zur|vom|am|im|auf|in)"
    r" [^:=\n\"']{1,40}| \([^)\n]{1,30}\))?"
)
_ASSIGNED = r"[\"'`*_]{0,3}(?: (?:is|est|ist|es|jest|lautet))?[ \t]{0,3}(?::=|[=\-]>|==?|:|\|)(?:[ \t]{0,3}\r?\n)?[ \t]{0,3}[*_]{0,2}[ \t]{0,2}"
_SEPARATOR = rf"{_ASSIGNED}[\"'`\\]{{0,2}}"
_VALUE = r"([^\s\"'`,;<>|\\]{4,})"
_IS = r"(?:is|was|lautet|ist|war|est|es|era|fue|\xe8|\xe9|\xe4r|er|on|to|brzmi|jest|az|je|auf|hei(?:\xdf|ss)t)"
_LOGIN = (
    r"(?:log(?:in|ged|ging)?(?:[ \-]?in)?|sign(?:ed)?[ \-]?in|credentials?|creds|user/pass(?:word)?|"
    r"zugangsdaten|anmeldedaten|anmeldung|identifiants?|credenciales|credenziali|accesso|acesso|"
    r"inloggegevens|logowania|dane logowania)"
)

_MYSQL = r"(?:mysql\w{0,10}|mariadb(?:-\w{1,10})?|mycli|xtrabackup)"
_COMMANDS: tuple[tuple[str, str], ...] = (
    (_MYSQL, r"-p"),
    (r"sshpass", r"-p[ \t]?"),
    (r"(?:curl|wget)", r"(?:-[a-zA-Z]{0,4}u|--user|--proxy-user|-U)[ \t=]?[\"']?[^\s:\"'$]{1,64}:"),
    (r"(?:http|https)", r"(?:-a|--auth)[ \t=]?[\"']?[^\s:\"'$]{1,64}:"),
    (r"(?:redis-cli|redis-benchmark|valkey-cli)", r"-a[ \t]"),
    (
        r"(?:(?:docker|podman|oras|helm registry|skopeo|nerdctl|buildah|az|oc|argocd|vault|npm|gcloud) login"
        r"|mongo(?:sh|dump|restore|import|export)?|arangosh|influx|cqlsh|vsql|nmcli)",
        r"-p[ \t]",
    ),
    (r"ldap(?:search|modify|add|delete|passwd|whoami|compare)", r"-w[ \t]?"),
    (r"(?:sqlcmd|bcp|isql|tsql|osql)", r"-P[ \t]?"),
    (r"(?:smbclient|rpcclient|smbmap|mount\.cifs|net rpc)", r"(?:-U|--user)[ \t=]?[\"']?[^\s%\"']{1,64}%"),
    (r"(?:plink|pscp|psftp|putty)(?:\.exe)?", r"-pw[ \t]"),
    (r"(?:7z[ar]?|un?rar|rar)", r"-p"),
    (r"(?:un)?zip", r"-P[ \t]?"),
    (r"htpasswd", r"-[a-zA-Z]{0,4}b[a-zA-Z]{0,4}[ \t][^\s]{1,80}[ \t][^\s]{1,64}[ \t]"),
    (r"net use(?: [^|]{1,120}?)?", r"/user:[^\s]{1,64}[ \t]"),
    (r"(?:xfreerdp|wfreerdp)", r"/p:"),
    (r"rdesktop", r"-p[ \t]"),
    (r"openssl", r"-pass(?:in|out)?[ \t]pass:"),
    (r"snmp(?:walk|get|set)", r"-[AX][ \t]"),
    (r"ipmitool", r"-P[ \t]"),
    (r"(?:evil-winrm|crackmapexec|nxc|kinit)", r"-p[ \t]"),
)  # fmt: skip
"""Programs, and what stands right before a password in their arguments."""

_OPTION = r"[\"']?([^\s\"'\x60]{3,})"


def _command(number: int, program: str, before: str) -> Rule:
    return Rule(
        f"command_{number}",
        "PASSWORD",
        rf"(?:^|[\s/;|&($`\"']){program}(?:[ \t][^\n]{{0,240}}?)?[ \t]{before}{_OPTION}",
        0.9,
        1,
        needs=tuple(
            sorted({word for word in re.findall(r"[a-z]{3,}|7z", program) if word != "exe"})
        ),
        ignore_case=False,
    )


PASSWORDS: tuple[Rule, ...] = (
    Rule(
        "labelled_password",
        "PASSWORD",
        rf"{_CUE}\d?{_OF}{_SEPARATOR}{_VALUE}",
        0.9,
        1,
        needs=_NEEDS,
        check=labelled,
    ),
    Rule(
        "quoted_password",
        "PASSWORD",
        rf"{_CUE}\d?{_ASSIGNED}\\?[\"'`]([^\s\"'`\\][^\"'`\\\n]{{4,80}})\\?[\"'`]",
        0.9,
        1,
        needs=_NEEDS,
        check=quoted,
    ),
    Rule(
        "short_labelled_password",
        "PASSWORD",
        rf"(?:^|[\W_]){_SHORT_CUE}{_SEPARATOR}{_VALUE}",
        0.9,
        1,
        needs=_SHORT_NEEDS,
        check=strong,
    ),
    Rule(
        "told_password",
        "PASSWORD",
        rf"\b{_CUE}(?:(?: [^\s:;,.!?\"'=]{{1,24}}){{0,5}}? {_IS}|'s):?[ \t]{{1,2}}[\"'`*]{{0,2}}{_VALUE}",
        0.8,
        1,
        needs=_NEEDS,
        check=told,
    ),
    Rule(
        "password_beside_cue",
        "PASSWORD",
        rf"(?:(?:\b|[a-z\xdf-\xff]{{3}}){_CUE}|\b{_SHORT_CUE})[ \t][\"'`(]?{_VALUE}",
        0.8,
        1,
        needs=(*_NEEDS, *_SHORT_NEEDS),
        check=strong,
    ),
    Rule(
        "wide_password",
        "PASSWORD",
        rf"{_WIDE_CUE}{_WIDE_OF}[ \t]{{0,3}}[\"'`*]{{0,2}}[ \t]{{0,2}}(?:{_WIDE_IS}|[ \t])[ \t]{{0,3}}[\"'`*「『“]{{0,2}}([!-~]{{4,}})",
        0.9,
        1,
        check=labelled,
        wide=True,
    ),
    Rule(
        "password_used",
        "PASSWORD",
        rf"\b(?:use|using|try|enter|type|set|nimm|utilise[rz]?|usa|use[mn]?|gebruik) [\"'`]?{_VALUE}[\"'`]? (?:as|for|als|comme|como|come|jako) (?:[a-z]{{2,5}} ){{0,2}}{_CUE}",
        0.8,
        1,
        needs=_NEEDS,
        check=strong,
    ),
    Rule(
        "password_element",
        "PASSWORD",
        r"<[\w.:\-]{0,30}(?:password|passwd|passphrase|pwd|passwort|kennwort|secret)>([^<>\s]{4,80})</",
        0.9,
        1,
        needs=("password>", "passwd>", "passphrase>", "pwd>", "passwort>", "kennwort>", "secret>"),
        check=labelled,
    ),
    Rule(
        "login_pair",
        "PASSWORD",
        rf"\b{_LOGIN}\b[^\n/|]{{0,24}}?(?:[:=]|\b(?:with|as|using|mit|als|avec|con|com|met|jako))[ \t]{{1,2}}[\"'`]?[\w.@+\-]{{2,64}}[\"'`]?(?:[ \t]?/[ \t]?|:|[ \t]\|[ \t])[\"'`]?{_VALUE}",
        0.8,
        1,
        needs=(
            "log", "sign", "cred", "user/", "zugang", "anmeld", "ident", "acces", "acess", "inlog",
        ),
        check=told,
    ),
    Rule(
        "netrc",
        "PASSWORD",
        r"\b(?:login|user)\s{1,8}\S{1,64}\s{1,8}password\s{1,8}(\S{3,})",
        0.9,
        1,
        needs=("password",),
        check=option,
    ),
    Rule(
        "pgpass",
        "PASSWORD",
        r"^(?:[\w.\-]{1,80}|\*):(?:5432|5433|6432|\*):[\w*.\-]{1,64}:[\w*.@\-]{1,64}:(\S{3,})$",
        0.9,
        1,
        needs=(":5432:", ":5433:", ":6432:", ":*:"),
        check=option,
    ),
    Rule(
        "password_option",
        "PASSWORD",
        r"(?:^|[\s\"'`\[])--?(?:[a-z]{1,16}-){0,2}(?:password|passwd|passphrase|passcode|storepass|keypass|pwd|pass|secret|token|api-?key)"
        rf"(?:[ \t]|=|[\"'],[ \t]?)[ \t]?{_OPTION}",
        0.9,
        1,
        needs=("-pass", "-pwd", "storepass", "keypass", "-secret", "-token", "-api"),
        check=option,
    ),
    Rule(
        "password_on_stdin",
        "PASSWORD",
        r"\b(?:echo|printf|<<<)[ \t]{1,2}(?:-n[ \t])?[\"']?(?:[\w.\-]{1,40}:)?([^\s\"':|]{4,})[\"']?[ \t]{0,2}\|[ \t]{0,2}(?:sudo|su|passwd|chpasswd|docker|cryptsetup|gpg|kinit|smbpasswd|sudo [a-z]{2,12})\b",
        0.9,
        1,
        needs=("echo", "printf", "<<<"),
        check=option,
    ),
    *(_command(number, *command) for number, command in enumerate(_COMMANDS)),
)  # fmt: skip
