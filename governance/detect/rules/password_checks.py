"""Whether a value is a password: placeholders, expressions, words of sentences, phrases of plain words."""

import re

from governance.names.words import common, is_plain, parts_of_programs, programs, things

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
    r"|%[a-z_]*%?|[@:&!][a-z_]+|\{[^}]*\}?"
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
    bitte neu setzen nicht nur jetzt noch schon auch sehr immer eingeben ändern zurücksetzen unbekannt vorhanden
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


def letters(value: str) -> bool:
    """Whether letters alone may be a password: no word that is said of passwords, no identifier."""
    if not 5 <= len(value) <= 40 or len(set(value.lower())) < 4 or value.isupper():
        return False
    if value.lower() in things():
        return False
    return not all(map(_is_word, _PARTS.findall(value)))


def unusual(value: str) -> bool:
    """Whether letters are a password where any word may follow: no everyday word of any language."""
    return letters(value) and not is_plain(value.lower())


_PATH = re.compile(r"(?:~|\.{1,2})?/[\w.@+\-]+(?:/[\w.@+\-]*)+\Z|[A-Za-z]:[\\/]")
"""A folder: what the command ``pwd`` answers."""
_ACCOUNT_COMMAND = re.compile(r"(?i)(?:user|group)(?:add|del|mod|show|next)\Z")


def bare(value: str) -> bool:
    """Whether what stands behind a label alone is one: ``pwd`` and ``pw`` are commands too."""
    if value.isdigit() or _mixed(value):
        return True
    of_programs = parts_of_programs() | programs()
    return unusual(value) and not (value.lower() in of_programs or _ACCOUNT_COMMAND.match(value))


_SENTENCE = """
    never always often usually kept shown sent is are was be been being has have had must should cannot can may will would does did not no the this that these those
    its it he she they we you i your my please at least most than then when where while if or but so because for from
    with without into onto about after before during using via per only one letters characters digits symbols words minimum
    maximum length case sensitive reset forgot forgotten change changed new old confirm confirmation repeat again login log
    sign account user username email mail link page screen dialog form manager policy policies rule rules prompt reuse expiry
    strength generator credentials credential stored hash hashing store vault
    """
_OF_SENTENCES = frozenset(_SENTENCE.split())
"""Words of sentences and labels about passwords: no phrase that is a password has one."""
_PHRASE_PARTS = re.compile(r"[ \-_.]+")


def phrase(value: str) -> bool:
    """Whether several plain words in small letters are a password: correct-horse-battery-staple."""
    words = _PHRASE_PARTS.split(value.strip())
    if len(words) < 3 or not value.islower() or stands_for_one(value):
        return False
    if sum(word in _SAID_OF_ONE for word in words) > 1:
        return False
    return all(
        word.isalpha()
        and len(word) > 1
        and word not in _OF_SENTENCES
        and not _PLACEHOLDER.match(word)
        for word in words
    )


def words(value: str) -> bool:
    """Whether several words, each with a capital, are a password: no sentence and nothing said of one."""
    plain = value.lower()
    return not stands_for_one(value) and not any(
        word in _OF_SENTENCES or word in _SAID_OF_ONE or _PLACEHOLDER.match(word)
        for word in plain.split()
    )


_QUALITIES = frozenset(
    [
        "weak",
        "strong",
        "long",
        "short",
        "good",
        "bad",
        "fine",
        "wrong",
        "right",
        "easy",
        "hard",
        "simple",
        "complex",
        "safe",
        "unsafe",
        "secure",
        "insecure",
        "fresh",
        "broken",
        "missing",
        "due",
        "gone",
        "lost",
        "visible",
        "invisible",
        "active",
        "inactive",
        "different",
        "identical",
        "same",
        "ready",
        "needed",
        "there",
        "here",
        "saved",
        "known",
        "unknown",
        "public",
        "private",
        "common",
        "unique",
        "random",
        "asked",
        "optional",
        "mandatory",
        "correct",
        "working",
        "okay",
    ]
)


def noun(value: str) -> bool:
    """Whether a word behind "my password is" is the password, and not what is said of it."""
    plain = value.lower()
    if len(plain) < 4 or not plain.isalpha() or plain in _QUALITIES | _SAID_OF_ONE | _OF_SENTENCES:
        return False
    return not plain.endswith(("ed", "ing", "able", "ible", "less")) and not stands_for_one(value)


def literal(value: str) -> bool:
    """Whether a value that a line of settings or an URL assigns is a password: any word may be one."""
    if not 4 <= len(value) <= 64 or stands_for_one(value) or value.isdigit():
        return not stands_for_one(value) and value.isdigit() and len(value) >= 4
    plain = value.lower()
    if plain in _SAID_OF_ONE or plain in _OF_SENTENCES or value.startswith(("/", ".", "-")):
        return False
    return value.isalpha() or labelled(value)


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
    if value.isalpha():
        return letters(value) and value.lower() not in _OF_SENTENCES
    return _mixed(value) or _marked(value) or ("-" in value and phrase(value))


def told(value: str) -> bool:
    """Whether what stands behind "the password is" is one."""
    if stands_for_one(value) or _PATH.match(value):
        return False
    if value.isdigit():
        return len(value) >= 6
    if value.isalpha():
        return letters(value) and value.lower() not in _OF_SENTENCES
    return _mixed(value) or _marked(value) or ("-" in value and phrase(value))


_ABOUT_ONE = re.compile(
    r"(?i)(?:manager|polic(?:y|ies)|reset|field|hint|hash\w*|protection|strength|expiry|generator|rules?|length|prompt|"
    r"dialog|page|form|column|parameter|variable|option|label|type|algorithm|check|validation|format)[\w ]{0,40}\Z"
)


def tells_one(text: str, start: int, end: int) -> bool:  # noqa: ARG001 - as all checks of what stands around
    """Whether the sentence tells a password, and not of what has to do with passwords."""
    return _ABOUT_ONE.search(text, max(0, start - 48), start) is None


def quoted(value: str) -> bool:
    """Whether what stands in quotation marks behind "password:" is one of several words."""
    words = value.split()
    if len(words) < 2 or stands_for_one(value):
        return False
    if any(len(word) >= 4 and _mixed(word) for word in words) or phrase(value):
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
    if value.startswith(("-", "/")) or stands_for_one(value) or value.replace("_", "").isupper():
        return False
    return not (value.isalpha() and value.islower() and _is_word(value))
