"""Passwords: what is told behind a label, in prose, in pairs and on command lines, in many languages."""

import re

from governance.detect.rules.password_checks import (
    labelled,
    letters,
    literal,
    noun,
    option,
    phrase,
    quoted,
    strong,
    tells_one,
    told,
    unusual,
)
from governance.detect.rules.rule import Rule

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
_WIDE_NEEDS = (
    "парол", "密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "패스워드", "비번", "암호", "كلمة", "סיסמ",
    "पासवर्ड", "รหัสผ่าน", "κωδικ", "hasło", "şifre", "parol", "mật khẩu", "lozinka", "slaptažodis",
)  # fmt: skip
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
    (r"openssl", r"-k[ \t]"),
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


_SETTING = r"(?:pass(?:word|wd|phrase|code)?|pwd|passwort|kennwort|senha|contrase(?:\xf1|n)a|wachtwoord|haslo)"
_POSSESSIVE = r"(?:my|our|the|her|his|their|mein|meine|das|dein|mon|mi|mia|meu|minha|mijn|moje)"

PASSWORDS: tuple[Rule, ...] = (
    Rule(
        "set_password",
        "PASSWORD",
        rf"(?:^|[?&;])[ \t]{{0,12}}(?:export |set |-e )?[\w.\-]{{0,40}}{_SETTING}=[\"']?([^\s\"'&;,)\]}}\\]{{4,64}})[\"']?(?:$|[&;]|[ \t]{{1,3}}(?:#|\w))",
        0.9,
        1,
        needs=("pass", "pwd=", "kennwort", "senha", "contrase", "wachtwoord", "haslo"),
        check=literal,
    ),
    Rule(
        "shared_key",
        "PASSWORD",
        r"(?:^|[\s,;{(\[_\"'])(?:wpa[_\-])?(?:psk|pre-?shared[ _\-]?key)[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?([^\s\"',;]{5,63})",
        0.9,
        1,
        needs=("psk", "shared"),
        check=literal,
    ),
    Rule(
        "shared_key_of_words",
        "PASSWORD",
        r"(?:^|[\s,;{(\[_\"'])psk[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']([^\"'\n]{8,63})[\"']",
        0.9,
        1,
        needs=("psk",),
        check=quoted,
    ),
    Rule(
        "shared_key_of_a_network",
        "PASSWORD",
        rf"\bwpa_passphrase[ \t]+(?:\"[^\"\n]{{1,32}}\"|[^\s\"]{{1,32}})[ \t]+{_OPTION}",
        0.9,
        1,
        needs=("wpa_passphrase",),
        check=option,
    ),
    Rule(
        "changed_password",
        "PASSWORD",
        rf"{_CUE}[^\n]{{0,80}}?\b(?:changed|set|reset|switched|updated|ge\xe4ndert|gesetzt|chang\xe9|cambiado|cambiata|alterado|gewijzigd)(?: (?:it|this|that|mine))? (?:to|auf|in|en|a|por|para|naar)[: ][\"'`]?{_VALUE}",
        0.8,
        1,
        needs=_NEEDS,
        check=strong,
    ),
    Rule(
        "net_user",
        "PASSWORD",
        r"\bnet user[ \t]{1,2}[^\s/]{1,64}[ \t]{1,2}[\"']?([^\s\"'/*]{3,64})",
        0.9,
        1,
        needs=("net user",),
        check=option,
    ),
    Rule(
        "sql_password",
        "PASSWORD",
        r"\b(?:identified (?:with [\w\"']{1,40} )?by|(?:encrypted |unencrypted )?password)[ \t]{1,2}(?:=[ \t]?)?'([^'\n]{3,64})'",
        0.9,
        1,
        needs=("identified", "password"),
        check=literal,
    ),
    Rule(
        "quoted_word",
        "PASSWORD",
        rf"{_CUE}\d?[\"']?[ \t]{{0,3}}(?:=|:|=>|:=)[ \t]{{0,3}}[\"']([^\s\"'\\]{{4,64}})[\"']",
        0.9,
        1,
        needs=_NEEDS,
        check=literal,
    ),
    Rule(
        "phrase_quoted",
        "PASSWORD",
        rf"{_SETTING}\d?[\"']?[ \t]{{0,3}}(?:=|:|=>|:=)[ \t]{{0,3}}[\"']([a-z]{{2,16}}(?: [a-z]{{2,16}}){{1,7}})[\"']",
        0.9,
        1,
        needs=("pass", "pwd", "kennwort", "senha", "contrase", "wachtwoord", "haslo"),
        check=phrase,
    ),
    Rule(
        "phrase_told",
        "PASSWORD",
        rf"{_CUE}(?:[ \t]{{1,2}}{_IS}:?|[ \t]?[:=])[ \t]{{1,2}}[\"'`]?([a-z]{{2,16}}(?:[ \-][a-z]{{2,16}}){{3,7}})[\"'`]?[ \t]*(?:[.,;!?)\n\r]|$)",
        0.8,
        1,
        needs=_NEEDS,
        check=phrase,
    ),
    Rule(
        "own_password",
        "PASSWORD",
        r"\b(?:my|his|her|our|their|your) (?:[\w\-]{1,12} )?(?:password|passphrase|passcode|pwd) (?:is|was):? [\"'`]?([a-zA-Z]{4,32})[\"'`]?[ \t]*(?:[.,;!?)\n\r]|and\b|but\b|$)",
        0.8,
        1,
        needs=("passw", "passp", "passc", "pwd"),
        check=noun,
    ),
    Rule(
        "logged_password",
        "PASSWORD",
        r"(?:^|[\s?&;,{\"'])(?:(?:pass|pwd?|psw|mdp)=|(?:pwd?|psw|mdp):[ ]?)[\"']?([^\s\"'&;,)\]}\\]{5,64})",
        0.9,
        1,
        needs=_SHORT_NEEDS,
        check=letters,
    ),
    Rule(
        "password_of_somebody",
        "PASSWORD",
        rf"\b{_POSSESSIVE} (?:{_CUE}|pw)[ \t][\"'`(]?([^\s\"'`,;:.!?<>|\\()]{{5,40}})[\"'`)]?(?: (?:does ?n.?t|do not|does not|is ?n.?t|is not|is|won.?t|no longer|not|stopped|still|works?|worked|lautet|ist|geht|funktioniert|hei\xdft|est|ne|non|n\xe3o|no|werkt|nie)\b|[.,!?\n]|$)",
        0.8,
        1,
        needs=(*_NEEDS, "pw"),
        check=unusual,
    ),
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
        around=tells_one,
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
        needs=_WIDE_NEEDS,
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
