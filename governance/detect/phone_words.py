"""Words that announce a phone number, in many languages: nouns, hints, and requests to call."""

import re

TELLS_PHONE = frozenset(
    [
        "phone", "phones", "telephone", "telephones", "cell", "cellphone", "cellular", "mobile", "tel", "tlf", "tfn", "puh",
        "mob", "cel", "fax", "whatsapp", "sms", "hotline", "landline", "handy", "telefon", "telefono", "telephon", "portable",
        "mobil", "mobiel", "mobiltelefon", "mobilnummer", "rufnummer", "telefonnummer", "durchwahl", "rückruf", "festnetz",
        "téléphone", "téléphonique", "portables", "numéro", "número", "móvil", "movil", "celular", "teléfono", "cellulare",
        "telefonino", "telemóvel", "telefone", "telefoon", "telefoonnummer", "gsm", "komórka", "komórkowy", "telefonu", "cep",
        "telefonum", "matkapuhelin", "puhelin", "номер", "номеру", "τηλέφωνο", "κινητό", "телефон", "телефону", "мобильный",
        "моб", "тел", "телефонный", "звонил", "mobilen", "msisdn", "tfno", "telemovel", "wa", "zap", "viber", "voicemail",
        "handynummer", "festnetznummer", "फोन", "फ़ोन", "मोबाइल", "هاتف", "جوال", "الهاتف", "טלפון", "נייד", "והטלפון",
    ]
)  # fmt: skip
"""Words that make digits without any shape a phone number."""
HINTS = frozenset(
    [
        "call", "dial", "ring", "reach", "contact", "number", "numbers", "text", "callback", "call-back", "answering", "answer",
        "messages", "registered", "contacto", "contato", "contatto", "kontakt", "recapito", "oddzwonienie", "wasap", "celu",
        "numero", "fijo", "fisso", "fixe",
    ]
)  # fmt: skip
"""Words that do so when they stand right before it, or for digits in the shape of a number."""
NUMBERED_THINGS = frozenset(
    [
        "part", "parts", "serial", "order", "invoice", "model", "item", "article", "version", "lot", "batch", "tracking",
        "ticket", "case", "catalog", "catalogue", "drawing", "reference", "parcel", "build", "revision", "asset", "product",
        "chapter",
    ]
)  # fmt: skip
"""What has a number too that is no phone's: a part number."""
_SAID_IN_SCRIPT = re.compile(
    r"(?:मोबाइल|मोबाईल|फ़ोन|फोन|मो\.|মোবাইল|ফোন|மொபைல்|தொலைபேசி|మొబైల్|ఫోన్|ಮೊಬೈಲ್|മൊബൈൽ|મોબાઇલ|ਮੋਬਾਈਲ|موبائل|موبایل|جوال|هاتف|هاتفي|电话|電話|手机|手機|手机号|联系方式|携帯|ケータイ|連絡先|전화|휴대폰|핸드폰|연락처|โทร|เบอร์)[^0-9\n]{0,8}\Z"
)
"""Words of scripts without spaces that make the digits behind them a phone number."""
_WHO = r"(?:(?-i:[A-Z\u00c0-\u00de\u0100-\u017f])[\w'.-]{1,20} ){1,3}"
"""Who is to be called: a word or three with capitals."""
_CALLED = re.compile(
    r"(?:\b(?:call|ring|text|phone|dial|reach|whatsapp|sms|callback)(?:(?: (?:me|us|him|her|them|back|you))+(?: (?:on|at|under|via))?| (?:on|at|under|via)):?"
    r"|\b(?:appele[rz]|rappele[rz]|joindre|joignable|contacte[rz])(?:-moi|-nous| moi)? ?(?:au|le|sur le)?:?"
    r"|\b(?:ll\u00e1m[ae](?:me|nos|lo|la)?|llamar(?:me|nos|l[eoa]s?)?|llamadme|contactar?(?:me)?)(?: al?| en el)?:?|\b(?:chiama(?:mi|temi|re|ci|rmi|rci|rl[aoi])?|chiami|contatta(?:mi|re|rmi|rci|rl[aoi])?)(?: al| il| lo)?:?"
    r"|\b(?:lig(?:ue|a|ar)(?:-me|-nos|-lhes?)?|telefon(?:e|ar)(?:-me|-nos|-lhes?)?|contact[aá](?:r|-l[oa]s?))(?: para(?: o)?| no| ao)?:?|\b(?:bel(?:len)?|bereikbaar)(?: me| mij| ons)?(?: op)?:?"
    r"|\b(?:ruf(?:en|t)?(?: sie)?(?: mich| uns)?(?: an| zur\u00fcck)?|anrufen|erreich(?:en|bar)(?: sie)?(?: mich| uns| ihn| sie)?|melde(?:n sie sich| dich))(?: bitte)?(?: unter| auf)?:?"
    r"|\b(?:za|od)?dzwo(?:ni\u0107|\u0144|\u0144cie)(?: do mnie)?(?: pod| na)?(?: numer)?:?|\b(?:za)?vol(?:ejte|at|ej)(?: mi| n\u00e1m)?(?: na)?:?"
    r"|\bpros(?:z\u0119|imy) o (?:kontakt|telefon)(?: pod)?(?: nr| numer(?:em)?)?:?|\bcontatt(?:are|i) (?:il|al) numero:?"
    rf"|\b(?:call|ring|text|phone|reach|contact|whatsapp) {_WHO}(?:on|at|under|via):?|\b(?:ll[a\u00e1]m[ae](?:r|le)?|contactar?(?: con)?) (?:a )?{_WHO}al?:?"
    rf"|\b(?:ruf(?:en|t)?|erreich(?:en|t|bar)?)(?: sie)? (?:bitte )?(?:herrn? |frau )?{_WHO}(?:bitte )?(?:an|unter|auf|zur\u00fcck)(?: unter)?:?"
    rf"|\br?appell?e[rz]? (?:m\. |mme )?{_WHO}(?:au|sur le):?|\b(?:chiama(?:re)?|contatta(?:re)?) {_WHO}al(?:lo)?:?"
    rf"|\b(?:lig(?:ue|a|ar)|telefon(?:e|ar)) (?:para |a )?(?:[oa] )?{_WHO}(?:no|pelo|para o):?|\bbel(?:len)? (?:met )?{_WHO}op:?"
    rf"|\b(?:za)?dzwo(?:ni\u0107|\u0144) do {_WHO}(?:pod|na)(?: numer)?:?"
    r"|\bмой номер(?: телефона)?:?|\bring(?: mig| mej| meg| til)?(?: p\u00e5)?:?|\bsoita(?: minulle| numeroon)?:?|\b\u0437\u0432\u043e\u043d\u0438\u0442\u0435:?|\bh\u00edv(?:jon|j)(?: a)?:?|\bsuna\u021bi(?:-m\u0103)?(?: la)?:?)\s{1,2}\Z",
    re.IGNORECASE,
)
"""Requests to call, in many languages: nine digits behind one are a number whatever their shape."""
_CALL_REACH = 48
_CALL_STEMS = (
    "call", "ring", "text", "phone", "dial", "reach", "sms", "whats", "appel", "join", "contact", "contatt", "llam", "ll\u00e1m", "chiam",
    "lig", "telefon", "bel", "bereik", "ruf", "erreich", "meld", "dzwo", "kontakt", "vol", "soita", "\u0437\u0432\u043e\u043d", "h\u00edv", "suna", "номер",
)  # fmt: skip
"""One of them is in each: a quick look at what stands before other digits."""


def said_in_script(text: str, start: int) -> bool:
    """Whether such a word stands right before a place."""
    return _SAID_IN_SCRIPT.search(text, max(0, start - 20), start) is not None


def asks_to_call(text: str, start: int) -> bool:
    """Whether somebody asks to be called right before a place."""
    if text[start - 1 : start] not in (" ", "\n"):
        return False
    before = text[max(0, start - _CALL_REACH) : start]
    lowered = before.lower()
    return any(map(lowered.__contains__, _CALL_STEMS)) and _CALLED.search(before) is not None
