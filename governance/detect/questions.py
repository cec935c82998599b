"""What a question asks for: its answer, in the next message, has a key as a field of a form has."""

import re

from governance.detect.rules.account_checks import person_account
from governance.detect.rules.name_checks import told
from governance.detect.rules.password_checks import labelled
from governance.names.words import ambiguous_names, family_names, first_names, plain_words

LONGEST_ANSWER = 80
ANSWERED_NAME = "answered_name"
"""The key of an answer that names somebody."""
_ENDS = ".!?。？！\n"
"""What ends a sentence."""
_MARKS = ".!?:。？！：…\"'»” "
"""What stands behind the words of a question."""
_LONGEST_QUESTION = 160
_NAME = re.compile(
    r"(?:sur|last |first |given |family |full |legal |your |his |her |their |\w{2,20}'s )name\b"
    r"|\bname of (?:the |your )?(?:account ?holder|patient|customer|client|caller|employee|contact|person|manager|tenant|driver|passenger)"
    r"|\bwho (?:am i|is (?:calling|speaking|this|your|the (?:caller|contact|patient|account ?holder|manager|owner))|should i (?:assign|address|call|send))"
    r"|\bmay i ask who\b|\bwhat (?:should|shall|can|may) i call you|\bhow (?:should|shall|may) i address|\bwhose (?:account|order|name)|\bwhich (?:employee|customer|patient|person|user|colleague)\b"
    r"|\bemergency contact|\b(?:vor|ruf|nach|familien|geburts)name\b|\bihr(?:en)? (?:vollst\u00e4ndiger?n? )?namen?\b|\bdein(?:en)? namen?\b|\bmit wem (?:spreche|habe)|\bwer (?:spricht|ist (?:der|die|ihr))"
    r"|\bwie hei(?:\u00df|ss)(?:en sie|t du|t er|t ihr)|\bauf welchen namen|\bwie darf ich sie (?:nennen|ansprechen)|\bum wen geht"
    r"|\b(?:votre|ton) (?:pr\u00e9)?nom\b|\bnom (?:de famille|complet|du (?:titulaire|client|patient|salari\u00e9|locataire))|\bcomment (?:vous appelez|t'appelles|s'appelle-t)|\b\u00e0 (?:quel nom|qui ai-je|qui (?:l')?affecter)|\bqui est \u00e0 l'appareil|\bqui (?:est|dois-je)"
    r"|\b(?:su|tu) (?:nombre|apellido)|\bnombre completo|\bapellidos?\b|\bc\u00f3mo (?:se llama|te llamas)(?: usted)?\s*\?|\bcon qui\u00e9n hablo|\ba nombre de qui\u00e9n|\bqui\u00e9n (?:es|habla)"
    r"|\b(?:suo|tuo) (?:nome|cognome)|\bcognome\b|\bnome e cognome|\bcome (?:si chiama|ti chiami)\s*\?|\bcon chi parlo|\b(?:seu|teu) (?:nome|apelido)|\bapelido\b|\bsobrenome\b|\bnome completo|\bcomo (?:se chama|te chamas)\s*\?|\bcom quem falo"
    r"|\b(?:uw|je|jouw) (?:volledige )?naam|\b(?:achter|voor)naam|\bhoe heet (?:u|je)|\bmet wie spreek|\bnazwisko\b|\bimi\u0119\b|\bjak si\u0119 (?:pan|pani|nazywasz)|\bjak masz na imi\u0119|\bz kim rozmawiam"
    r"|\u0444\u0430\u043c\u0438\u043b\u0438\u044f|\u0432\u0430\u0448\u0435 \u0438\u043c\u044f|\u0438\u043c\u044f \u0438 \u0444\u0430\u043c\u0438\u043b\u0438|\u043a\u0430\u043a (?:\u0432\u0430\u0441|\u0442\u0435\u0431\u044f) \u0437\u043e\u0432\u0443\u0442|\u043f\u0440\u0435\u0434\u0441\u0442\u0430\u0432\u044c\u0442\u0435\u0441\u044c|\u0441 \u043a\u0435\u043c \u044f"
    r"|\bad\u0131n\u0131z|\bsoyad\u0131n\u0131z|\bisminiz|\bkiminle g\u00f6r\u00fc\u015f|\u8d35\u59d3|\u60a8\u7684(?:\u59d3\u540d|\u540d\u5b57|\u5168\u540d)|\u4f60\u7684(?:\u59d3\u540d|\u540d\u5b57)|\u53eb\u4ec0\u4e48\u540d\u5b57|\u600e\u4e48\u79f0\u547c|\u5982\u4f55\u79f0\u547c|\u304a\u540d\u524d|\u6c0f\u540d|\u82d7\u5b57|\u3069\u3061\u3089\u69d8|\uc131\ud568|\uc774\ub984|\ub204\uad6c"
    r"|\u0627\u0633\u0645\u0643|\u05e9\u05de\u05da|\u0906\u092a\u0915\u093e \u0928\u093e\u092e|\A\s*(?:full name|name|vollst\u00e4ndiger name|nom|nombre|nome|naam)\s*[?:]?\s*\Z",
    re.IGNORECASE,
)
_PASSWORD = re.compile(
    r"pass(?:word|wort|phrase|code)|kennwort|mot de passe|contrase\u00f1a|\bsenha\b|palavra-passe|wachtwoord|has\u0142o|\u043f\u0430\u0440\u043e\u043b\u044c|\u5bc6\u7801|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638|\u015fifre",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(
    r"user ?name|\blogin\b|user ?id|benutzername|nutzername|identifiant|nom d'utilisateur|usuario|nome utente|utilizador|gebruikersnaam|u\u017cytkownik",
    re.IGNORECASE,
)
_PHONE = re.compile(
    r"phone|mobile|\bcell\b|number (?:can|should|may) (?:we|i)|telefon|handynummer|rufnummer|num\u00e9ro|tel\u00e9fono|telefoon|\u0442\u0435\u043b\u0435\u0444\u043e\u043d|\u7535\u8bdd|\u96fb\u8a71|\u624b\u673a|\uc804\ud654",
    re.IGNORECASE,
)
_BIRTH = re.compile(
    r"date of birth|\bdob\b|birth ?(?:day|date)|were you born|geburtsdatum|geburtstag|geboren|date de naissance|n\u00e9e? le|fecha de nacimiento|naci\u00f3|data di nascita|nato|data de nascimento|geboortedatum|data urodzenia|\u0434\u0430\u0442\u0430 \u0440\u043e\u0436\u0434|\u51fa\u751f|\u751f\u5e74\u6708\u65e5|\uc0dd\ub144\uc6d4\uc77c",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"\baddress\b|where do you live|anschrift|adresse|wohnen sie|direcci\u00f3n|domicilio|indirizzo|morada|endere\u00e7o|\badres|\u0430\u0434\u0440\u0435\u0441|\u5730\u5740|\u4f4f\u6240|\uc8fc\uc18c",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:(?:it's|it is|that's|sure|yes|yeah|ok|okay|of course|hi|hello|ja|klar|gerne|das ist|oui|bien s\u00fbr|c'est|s\u00ed|claro|es|certo|sim|tak|\u0434\u0430)[,.:!]? )+",
    re.IGNORECASE,
)
_HEAD = re.compile(r"[^,.;:!?\n]+")
_OWNER = re.compile(r"(?:'s|\u3067\u3059|\uc785\ub2c8\ub2e4|\uc774\uc5d0\uc694|\uc608\uc694)\Z")
_MOST_WORDS = 4


def key_of_answer(question: str, answer: str) -> str | None:
    """Return the key under which a form would hold the answer, where it is what was asked for.

    Args:
        question: the end of the message before.
        answer: a short message.
    """
    said = last_sentence(question)
    if not said:
        return None
    value = answer.strip().rstrip(".")
    if not value or len(value) > LONGEST_ANSWER:
        return None
    if " " not in value and _PASSWORD.search(said):
        return "password" if labelled(value) else None
    if " " not in value and _ACCOUNT.search(said):
        return "username" if person_account(value) else None
    digits = sum(map(str.isdigit, value))
    if digits:
        if _BIRTH.search(said):
            return "date_of_birth"
        if digits >= 7 and _PHONE.search(said):
            return "phone"
        return "address" if _ADDRESS.search(said) else None
    return ANSWERED_NAME if _NAME.search(said) and _is_a_name(value) else None


def last_sentence(text: str) -> str:
    """Return the sentence that a text ends with, and the marks behind it."""
    words = text.rstrip(_MARKS)
    start = max(map(words.rfind, _ENDS)) + 1
    return text[max(start, len(words) - _LONGEST_QUESTION) :].strip()


def name_in_answer(answer: str) -> tuple[int, int] | None:
    """Return where the name stands in an answer that is one."""
    filler = _FILLER.match(answer.lstrip())
    start = len(answer) - len(answer.lstrip()) + (filler.end() if filler else 0)
    head = _HEAD.match(answer, start)
    if head is None:
        return None
    value = _OWNER.sub("", head[0].rstrip())
    return (start, start + len(value)) if value.strip() else None


def _is_a_name(answer: str) -> bool:
    """Whether all words of an answer, up to its first mark, may be those of a name."""
    place = name_in_answer(answer)
    if place is None:
        return False
    words = answer[slice(*place)].replace("-", " ").replace("'", " ").split()
    if not 0 < len(words) <= _MOST_WORDS or not all(map(str.isalpha, words)):
        return False
    return all(_may_be_in_a_name(word) for word in words) and told(words[0].capitalize()) is None


def _may_be_in_a_name(word: str) -> bool:
    if word.lower() not in plain_words():
        return True
    listed = word.title()
    return word[0].isupper() and (
        listed in first_names() or listed in family_names() or listed in ambiguous_names()
    )
