"""Whether a capitalised run is the name of a company, by what stands around it."""

import re
from collections.abc import Sequence

_FORM = (
    r"(?:gGmbH|GmbH|mbH|AG|KGaA|KG|OHG|UG|SE|e\.V\.|SARL|SAS|SASU|EURL|SNC|S\.?A\.?S?\.?|S\.?L\.?U?\.?|S\.?p\.?A\.?|S\.?r\.?l\.?|"
    r"B\.?V\.?|N\.?V\.?|V\.?O\.?F\.?|Ltd\.?|Limited|LLC|Inc\.?|Incorporated|Corp\.?|Corporation|Co\.|PLC|plc|LLP|LP|[Ss]p\. ?z ?o\. ?o\.?|"
    r"Oyj?|AB|ASA|A/S|ApS|Lda\.?|Ltda\.?|A\.\u015e\.|\u041e\u041e\u041e|\u0410\u041e|Pty\.?|"
    r"Holdings?|Group|Gruppe|Groupe|Grupo|Gruppo|Groep|Grupa|Industries|Industrie|Enterprises|Logisti(?:k|cs|que|ca)|Consulting|"
    r"Partners|Motors|Airlines|Airways|Pharma(?:ceuticals)?|Banks?|Banco|Banca|Banque|Versicherung(?:en)?|Insurance|Assurances?|Seguros|Systems|"
    r"Solutions|Technologies|Technology|Software|Labs|Laboratories|Studios?|Foods|Brothers|Bros\.?|Hermanos|Fr\u00e8res|Fratelli|"
    r"Fils|Figli|Filhos|Hijos|Zonen|S\u00f6hne|Sons|Verlag|Werke|Stiftung|Foundation|Institute?|Institut|University|Universit\w{1,4}|College|Hospital|"
    r"Klinik(?:um)?|Media|Records|Energy|Energie|Capital|Ventures|Securities|Reuters|Stores|Hotels?|Apotheke|Pharmacy|Transporte?s?|Immobilien|"
    r"Electronics?|Electric|Elektro(?:nik|technik)?|(?:Maschinen|Werkzeug|Heizungs|Metall|Holz|Tief|Hoch|Stahl|Anlagen|Garten|Fenster)bau|Chemicals?|Aerospace|Automotive|Press|Publishing|Entertainment|Pictures|Networks?|Communications|Telecom|Telekom)"
)
_JOINT = r"(?:&|\+)"
_BEHIND = re.compile(
    rf"[ ,]{{1,2}}(?:(?:{_JOINT}|and|und|et|y|e|i|en) )?(?:(?:(?!from |with )\w[\w.'-]{{0,20}} ){{0,2}}{_JOINT} )?{_FORM}(?!\w)"
    rf"|[ ]?{_JOINT}[ ]?(?:[^\W\d_a-z]|de )"
)
_AT_ITS_END = re.compile(rf"[ ,]{_FORM}\Z")
_JOINED_BEFORE = re.compile(rf"[^\W\d_]{{2,}}'?s?[ ]?{_JOINT}[ ]?\Z")
_BEFORE = re.compile(
    r"(?:\b(?:(?:shares?|stock|CEO|CFO|CTO|founders?|customers?|subsidiary|headquarters|board|revenues?|products?|employees|spokes\w{2,6}|analysts?|branch|store|works? (?:at|for)"
    r"|worked|job|shop|shopping|bought (?:it |this |that )?|ordered (?:it |this |that )?|acquired|acquires|competitors?|partnership|lawsuit|merger|deal) (?:of|for|at|by|from|with|against|between)"
    r"|[Aa]ktien? (?:von|der|des)|[Uu]msatz (?:von|der|des)|[Gg]ewinn (?:von|der|des)|[Ss]precher(?:in)? (?:von|der|des)|[Zz]entrale (?:von|der|des)|[Vv]orstand (?:von|der|des)|[Ff]iliale (?:von|der|des)|[Mm]itarbeiter (?:von|der|des)"
    r"|(?:arbeitet|arbeite|gekauft|bestellt|kaufe) bei|bei|[Ss]i\u00e8ge(?: social)? de|[Ff]iliale de|[Mm]agasin|[Gg]roupe|[Ss]oci\u00e9t\u00e9|[Aa]ction|[Aa]ctions de|[Cc]hez"
    r"|[Ss]ede (?:de|di|da|do)|[Ff]ilial (?:de|da|do)|[Aa]cciones de|[Ee]mpresa|[Gg]rupo|[Cc]ompa\u00f1\u00eda|[Tt]ienda(?: de)?|[Aa]zioni (?:di|della)|[Gg]ruppo|[Ss]ociet\u00e0|[Aa]\u00e7\u00f5es d[aeo]"
    r"|[Oo]mzet van|[Aa]andelen(?: van)?|[Bb]edrijf|[Aa]kcje|[Ff]irm[ay]|[Ss]p\u00f3\u0142ka|[Kk]onzern|[Uu]nternehmen|[Aa]utobauer|[Hh]ersteller|[Hh]\u00e4ndler|[Dd]iscounter|[Cc]ompany|[Bb]rand|[Rr]etailer|[Aa]utomaker|[Bb]ank|[Mm]arke)"
    r"|(?:[Ss]upplier|[Vv]endor|[Mm]anufacturer|[Bb]rand|[Cc]ompany|[Mm]erchant|[Ss]tore|[Ee]mployer|[Cc]arrier|[Ll]ieferant|[Hh]ersteller|[Ff]irma|[Mm]arke|[Hh]\u00e4ndler|[Aa]rbeitgeber|[Ff]ournisseur|[Ee]ntreprise|[Ss]oci\u00e9t\u00e9|[Mm]arque|[Ff]abricant"
    r"|[Pp]roveedor|[Ee]mpresa|[Mm]arca|[Ff]abricante|[Ff]ornitore|[Aa]zienda|[Pp]roduttore|[Ff]ornecedor|[Ll]everancier|[Bb]edrijf|[Mm]erk|[Dd]ostawca|[Mm]arka)(?:s|en|es|i)?\*{0,2}[ ]?[:=])"
    r"(?: (?:the|der|die|das|le|la|l'|el|il|lo|o|a|de|het))? ?[\"']?\Z"
)
_MAY_GO_ON = frozenset(" ,&+")
_DOES = re.compile(
    r"(?:'s)? (?:announce[sd]?|acquire[sd]?|buys|sells|lays off|laid off|is hiring|reported (?:record|a loss|a profit|quarterly)|shares|stock|revenues?|plans to|launche[sd]|layoffs"
    r"|entl\u00e4sst|\u00fcbernimmt|w\u00e4chst|baut (?:Stellen|ein)|streicht|supprime|recrute|rach\u00e8te|annonce|recule|anuncia|compra|contrata|despide|annuncia|acquista|licenzia|demite|groeit|ontslaat|zwalnia|kupuje)\b"
)


_WORDS_BEFORE = frozenset(
    word.lower()
    for word in re.findall(
        r"[A-Za-z\u00c0-\u017f]+", re.sub(r"\[(.)[^\]]*\]", r"\1", _BEFORE.pattern)
    )
)
_FORMS_BEFORE = frozenset(("ооо", "оао", "зао", "пао", "ао", "нко", "фгуп", "муп", "тов"))
"""Legal forms that stand before the name of a company."""
_BETWEEN = " \"'\t:=*\u00ab"
_REACH = 60


def _last_word(before: str) -> str:
    """Return the word at the end of a text in small letters."""
    stop = len(before.rstrip(_BETWEEN))
    start = stop
    while start and before[start - 1].isalpha():
        start -= 1
    return before[start:stop].lower()


def is_a_company(text: str, start: int, stop: int, *, is_named: bool) -> bool:
    """Whether a legal form, an ampersand or the sentence makes a capitalised run a company.

    Args:
        text: what the run stands in.
        start: where it begins.
        stop: where it ends.
        is_named: whether it has several words and begins with a given name: then only a form decides.
    """
    behind = text[stop : stop + 1]
    found = _BEHIND.match(text, stop) if behind in _MAY_GO_ON else None
    if found is not None and not (is_named and found[0].strip()[:1] in ("&", "+")):
        return True
    if " " in text[start:stop] and _AT_ITS_END.search(text, start, stop):
        return True
    before = text[max(0, start - _REACH) : start]
    if before[-2:].strip() in ("&", "+") and _JOINED_BEFORE.search(before):
        return True
    if is_named or not (before or behind):
        return False
    if behind in (" ", "'") and _DOES.match(text, stop):
        return True
    word = _last_word(before)
    return word in _FORMS_BEFORE or (word in _WORDS_BEFORE and _BEFORE.search(before) is not None)


def has_a_form_before(words: Sequence[str]) -> bool:
    """Whether a legal form is the first of some words: ООО Ромашка."""
    return words[0].isupper() and words[0].lower() in _FORMS_BEFORE
