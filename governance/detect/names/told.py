"""Names behind cues of many languages: titles, introductions, labels, salutations, closings, file names."""

import re

from governance.detect.rules.rule import Rule
from governance.names.companies import is_a_company
from governance.names.words import (
    ambiguous_names,
    family_names,
    first_names,
    is_plain,
    things,
    within_a_thing,
)

_UP, _LOW = r"A-Z\xc0-\xd6\xd8-\xde", r"a-z\xdf-\xf6\xf8-\xff"
_WORD = rf"[{_UP}][{_LOW}]+(?:['\-][{_UP}]?[{_LOW}]+)?|[{_UP}]'[{_UP}][{_LOW}]+|[{_UP}]{{3,}}"
_PARTICLE = (
    r"(?:de la|de|del|della|di|da|dos|das|do|du|van der|van den|van|von|zu|ter|le|la|el|al|bin|y|e)"
)
_NAME = rf"((?:{_WORD})(?:[ \xa0](?:{_PARTICLE} )?(?:{_WORD})){{0,3}})"
_TWO = rf"((?:{_WORD})(?:[ \xa0](?:{_PARTICLE} )?(?:{_WORD})){{1,3}})"
_LINE = r"(?:^|[\n\r|>,;({\[*\"' ])"

_TITLES = (
    r"(?:Herrn?|Frau|Fr\xe4ulein|Hr\.|Fr\.|M\.|MM\.|Mme|Mlle|Monsieur|Madame|Mademoiselle|Sr\.?|Sra\.?|Srta\.|Se\xf1ora?|"
    r"[Ss]e\xf1orita|[Ss]e\xf1ora?|[Dd]ott?\.?(?:ssa)?\.?|[Ii]ng\.|[Aa]vv\.|[Pp]rof\.?(?:ssa)?\.?|[Ss]ig\.?(?:ra|na)?\.?|[Ss]ignora?|[Mm]adame|[Mm]onsieur|[Ss]enhora?|Don|Do\xf1a|Sig\.?(?:ra|na)?\.?|Signora?|Dott\.(?:ssa)?|Avv\.|Senhora?|Dona|[Dd]hr\.?|[Mm]evr?\.|[Mm]evrouw|[Mm]eneer|(?:[Dd]e )?[Hh]eer|"
    r"Pan|[Pp]ani|[Pp]ani\xe0|[Pp]ana|[Pp]anu|[Pp]anem|Panie|Say\xe0n|Fru|Herra|Rouva|Mr|Mrs|Ms|Dr|Prof)"
)
_INTRODUCTIONS = (
    r"(?:[Mm]ein (?:voller )?Name (?:ist|lautet)|[Ii]ch hei(?:\xdf|ss)e|[Hh]ier spricht|[Jj]e m'appelle|[Mm]on nom est|[Mm]e llamo|[Mm]i nombre es|"
    r"[Ll]e habla|[Hh]abla|[Mm]i chiamo|[Ii]l mio nome \xe8|[Mm]eu nome \xe9|[Cc]hamo-me|[Mm]e chamo|[Mm]ijn naam is|[Ii]k heet|"
    r"[Nn]azywam si\xe0|[Mm]am na imi\xe0|[Bb]enim ad\xe0m|[Aa]d\xe0m|[Ii\xc0]smim|[Jj]ag heter|[Mm]itt namn \xe4r|[Jj]eg hedder|[Mm]it navn er|[Jj]eg heter|"
    r"[Mm]ein (?:Nach|Vor|Familien)name (?:ist|lautet)|[Mm]on (?:pr\xe9nom|nom de famille|nom complet) est|[Mm]oi c'est|[Mm]i (?:apellido|nombre completo) es|[Ll]e atiende|[Ii]l mio cognome \xe8|"
    r"[Mm]eu (?:apelido|sobrenome|nome completo) \xe9|[Aa]qui fala|[Mm]ijn (?:achter|voor)naam is|[Uu] spreekt met|[Mm]oje nazwisko to|[Zz] tej strony|[Ss]oyad\xe0m|\xc0smim|[Mm]y (?:sur|first |last |full |family |given )name(?: is|:)|"
    r"[Ss]ie sprechen mit|[Ii] go by|[Pp]eople call me|[Nn]imeni on|[Jj]menuji se|[Nn]umele meu este|[Mm]\xe0 numesc|[Mm]y name is|[Tt]he name is)"
)
_WEAK_INTRODUCTIONS = (
    r"(?:[Ii]ch bin|[Hh]ier ist|[Jj]e suis|[Ii]ci|[Cc]'est|[Ss]oy|[Ss]ono|[Ss]ou(?: [oa])?|[Ii]k ben|[Jj]estem|[Bb]en|[Jj]ag \xe4r|[Jj]eg er|"
    r"[Hh]abla con|[Tt]his is|[Ii] am|[Ii]'m)"
)
_ROLES = (
    r"(?:Benutzer(?:in)?|Nutzerin|Kund(?:e|in)|Klient(?:in|ka|em)?|Anrufer(?:in)?|Melder(?:in)?|Bearbeiter(?:in)?|Zust\xe4ndig|Ansprechpartner(?:in)?|Verantwortliche?r?|"
    r"Absender(?:in)?|Empf\xe4nger(?:in)?|Patient(?:in|e)?|Mitarbeiter(?:in)?|Mieter(?:in)?|Nutzer(?:in)?|Kolleg(?:e|in)|[Cc]liente?|[Cc]lienta|[Aa]ppelant|[Dd]emandeur|"
    r"[Rr]esponsable|[Dd]estinataire|[Ee]mploy\xe9e?|[Cc]oll\xe8gue|[Ss]olicitante|[Ee]mplead[oa]|[Pp]aciente|[Rr]ichiedente|[Dd]ipendente|[Cc]ollega|"
    r"[Rr]espons\xe1vel|[Ff]uncion\xe1ri[oa]|[Kk]lant|[Bb]ehandelaar|[Mm]edewerker|Zg\xe0aszaj\xe0c[ya]|Osoba odpowiedzialna|[Pp]racownik|M\xfc\xe0teri|Sorumlu|Atanan|"
    r"[Cc]ustomer|[Cc]aller|[Rr]equester|[Rr]eporter|[Aa]ssignee|[Pp]atient|[Ee]mployee|[Cc]ontact|[Oo]wner|[Aa]uthor|[Aa]pprover|[Ww]atchers?|[Aa]gent|[Aa]ffected user|"
    r"Kontakt(?:person)?|Auftraggeber(?:in)?|Antragsteller(?:in)?|Teilnehmer(?:in)?|Inhaber(?:in)?|Techniker(?:in)?|[Cc]ontact[oe]?|[Cc]ontatto|[Cc]ontactpersoon|[Uu]tilisat(?:eur|rice)(?: concern\xe9e?)?|[Uu]suari[oa](?: afectad[oa])?|"
    r"[Tt]echnicien(?:ne)?|[Tt]\xe9cnic[oa]|[Tt]ecnico|Technik|[Tt]itulaire|[Tt]itular|[Ii]ntestatario|[Bb]\xe9n\xe9ficiaire|[Aa]anvrager|[Gg]ebruiker|U\xe0ytkownik|Kullan\xe0c\xe0|\xc0leti\xe0im|Teknisyen|[Uu]tilizador)"
)
_LABELS = (
    r"(?:Name|Vorname|Nachname|Familienname|Geburtsname|Nom(?: de famille)?|Pr\xe9nom|Nombre(?: completo)?|Apellidos?|Nome(?: completo)?|Cognome|Apelido|Naam|"
    r"Voornaam|Achternaam|Imi\xe0(?: i nazwisko)?|Nazwisko|Ad(?: Soyad)?|Soyad\xe0?|Namn|Navn|Jm\xe9no|Talep eden|Von|An|De|\xc0|Para|Da|Van|Aan|Od|Do|Kimden|Kime|Cc|CC|"
    r"Gemeldet von|Assign\xe9 \xe0|Asignado a|Assegnato a|Atribu\xeddo a|Zugewiesen an)"
)
_PARTS = (
    r"vorname|rufname|nachname|familienname|geburtsname|pr[\xe9e]nom|nom de famille|apellidos?|cognome|apelido|sobrenome|voornaam|achternaam|imi\xe0|nazwisko|soyad\xe0?|"
    r"sur_?name|fore_?name|first[ _]?names?|last[ _]?names?|given[ _]?names?|family[ _]?names?|maiden[ _]?name|nom de jeune fille|meisjesnaam|full[ _]?name|display[ _]?name|real[ _]?name|legal[ _]?name|"
    r"nombre completo|nombre y apellidos|nom complet|nome completo|nome e cognome|imi\xe0 i nazwisko|ad soyad|vollst\xe4ndiger name|sn|cn|gecos"
)
"""Labels of a part of a name, or of a name in full."""
_PART_NEEDS = (
    "name", "nom", "apell", "apelido", "imi\xe0", "nazwisko", "soyad", "naam", "cognome", "sn:", "sn=", "cn:", "cn=", "gecos",
)  # fmt: skip
_WHOLES = r"name|nom|nombre|nome|naam|ad"
_BY = (
    r"(?:(?:[Gg]emeldet|[Ee]rstellt|[Gg]epr\xfcft|[Gg]enehmigt|[Ff]reigegeben|[Vv]erfasst|[Uu]nterschrieben|[Gg]esendet) von|[Zz]ugewiesen an|schrieb|[Gg]ez\.|"
    r"(?:[Ss]ignal\xe9e?|[Tt]rait\xe9e?|[Cc]r\xe9\xe9e?|[Vv]alid\xe9e?|[Aa]pprouv\xe9e?|[Ee]nvoy\xe9e?) par|[Aa]ssign\xe9e? \xe0|(?:[Rr]eportad[oa]|[Cc]read[oa]|[Aa]probad[oa]|[Ff]irmad[oa]|[Ee]nviad[oa]) por|"
    r"[Aa]signad[oa] a|(?:[Ss]egnalat[oa]|[Cc]reat[oa]|[Aa]pprovat[oa]|[Ii]nviat[oa]) da|[Aa]ssegnat[oa] a|(?:[Aa]bert[oa]|[Cc]riad[oa]|[Aa]provad[oa]|[Ee]nviad[oa]) por|[Aa]tribu\xedd[oa] a|"
    r"[Gg]emeldet durch|[Ww]eitergeleitet an|(?:[Aa]nfrage|[Kk]onto|[Tt]icket|[Kk]ommentar) von|[Rr]\xfcckruf an|(?:[Dd]emande|[Cc]ommentaire|[Cc]ompte) de|[Tt]ransf\xe9r\xe9e? \xe0|[Aa]ffect\xe9e? \xe0|[Rr]appeler|[Oo]uvert par|"
    r"(?:[Ss]olicitud|[Cc]omentario|[Cc]uenta) de|[Dd]erivad[oa] a|[Aa]biert[oa] por|[Ll]lamar a|(?:[Rr]ichiesta|[Cc]onto) di|[Ii]noltrat[oa] a|[Aa]pert[oa] da|(?:[Pp]edido|[Cc]onta) de|[Ee]ncaminhad[oa] para|"
    r"(?:[Vv]erzoek|[Aa]ccount) van|[Dd]oorgestuurd naar|[Zz]g\xe0oszenie od|[Pp]rzekazano do|[Kk]onto u\xe0ytkownika|"
    r"(?:[Gg]emeld|[Aa]angemaakt|[Gg]oedgekeurd) door|[Tt]oegewezen aan|[Zz]g\xe0oszon[eay] przez|[Uu]tworzon[eay] przez|[Pp]rzypisan[eoy] do|"
    r"(?:[Rr]eported|[Aa]pproved|[Rr]eviewed|[Aa]ssigned|[Ee]scalated|[Cc]reated|[Oo]pened|[Cc]losed|[Ss]igned) (?:by|to)|[Ss]poke (?:with|to))"
)
_SALUTATIONS = (
    r"(?:Lieber?|Hallo|Guten Tag|Sehr geehrter?|Werter?|Moin|Ch\xe8re?|Cher|Bonjour|Querid[oa]|Estimad[oa]|Hola|Car[oa]|Gentile|Egregio|Ciao|Ol\xe1|Prezad[oa]|Beste|Hoi|Geachte|"
    r"Buongiorno|Buonasera|Bom dia|Boa tarde|Coucou|Salut|Guten Morgen|Buenos d\xedas|Goedemorgen|Dzie\xe0 dobry|Dobr\xfd den|Szanown[ya]|Drog[ia]|Cze\xe0\xe0|Say\xe0n|Merhaba|Sevgili|Hej|K\xe4re|Kj\xe6re|Dear|Hi|Hello)"
)
_SALUTATION_NEEDS = (
    "lieb", "hallo", "guten", "geehrt", "werte", "moin", "cher", "ch\xe8r", "bonjour", "querid", "estimad", "hola", "cara ", "caro ", "gentile", "egregio",
    "ciao", "ol\xe1", "prezad", "beste", "hoi", "geachte", "buon", "bom dia", "boa tarde", "coucou", "salut", "buenos", "goedem", "dzie\xe0", "dobr\xfd", "szanown",
    "drog", "cze\xe0", "say\xe0n", "merhaba", "sevgili", "hej", "k\xe4re", "kj\xe6re", "dear", "hi ", "hello",
)  # fmt: skip
_CLOSINGS = (
    r"(?:Besos|Besitos|Un beso|Beijinhos|Beijos|Bisous|Bises|Baci|Un bacio|Liefs|Buziaki|Belle journ\xe9e|Bonne journ\xe9e|A presto|\xc0 bient\xf4t|At\xe9 (?:logo|breve)|Hasta (?:pronto|luego)|Tot (?:snel|ziens|gauw)|Bis (?:bald|dann|morgen)|Sch\xf6nen (?:Tag|Abend)|\xc0yi (?:\xe7al\xe0\xe0malar|g\xfcnler)|Kolay gelsin|[A-Z\xc0-\xde][^\n]{0,24}(?:Gr\xfc\xdfe[n]?|Gr\xfcsse[n]?|Gru\xdf|[Ss]alutations|[Ss]aludos|[Ss]aluti|[Cc]umprimentos|[Gg]roet(?:en|jes)?|[Gg]ru\xdf)|Gr\xfc\xdfe|Gru\xdf|LG|VG|MfG|"
    r"(?:Bien )?[Cc]ordialement|Bien \xe0 vous|Amicalement|Sinc\xe8rement|Saludos|Un saludo|Un abrazo|Abrazos|Atentamente|Saluti|Cordialmente|Atenciosamente|Cumprimentos|Abra\xe7os|"
    r"Groet(?:en|jes)?|(?:Muchas )?[Gg]racias|(?:Mille )?[Gg]razie(?: mille)?|(?:Muito )?[Oo]brigad[oa]|Merci(?: beaucoup| d'avance| bien)?|Danke(?: dir| Ihnen| sch\xf6n| im Voraus)?|(?:Vielen|Besten|Herzlichen) Dank(?: im Voraus)?|(?:Alvast )?[Bb]edankt|Dank je(?: wel)?|Dzi\xe0ki|Dzi\xe0kuj\xe0|Te\xe0ekk\xfcrler|Tack|Takk|Pozdrawiam|Z powa\xe0aniem|Sayg\xe0lar(?:\xe0mla)?|Sevgiler|Med v\xe4nliga h\xe4lsningar|Med venlig hilsen|Hilsen|Mvh)[,.!]?[ \t]*(?:\r?\n[ \t>]*){1,3}"
)


_TITLE_NEEDS = (
    "herr ", "herrn ", "frau ", "fr\xe4ulein ", "hr. ", "fr. ", "m. ", "mme ", "mlle ", "monsieur ", "madame ", "mademoiselle ",
    "ing. ", "prof", "sr ", "sr. ", "sra ", "sra. ", "srta. ", "se\xf1or ", "se\xf1ora ", "don ", "do\xf1a ", "sig", "dott", "avv. ", "senhor", "dona ",
    "dhr", "mev", "meneer ", "heer ", "pan ", "pani ", "pani\xe0 ", "panem ", "pana ", "panu ", "panie ", "say\xe0n ", "fru ", "herra ", "rouva ", "mr ",
    "mrs ", "ms ", "dr ", "prof ", "\xa0",
)  # fmt: skip
_ROLE_NEEDS = (
    "kund",
    "nutzer",
    "klient",
    "anruf",
    "meld",
    "bearb",
    "zuständ",
    "ansprech",
    "verantw",
    "absend",
    "empfän",
    "patient",
    "mitarb",
    "mieter",
    "nutzer",
    "kolleg",
    "client",
    "appelant",
    "demandeur",
    "responsable",
    "destinat",
    "employ",
    "coll",
    "solicit",
    "emplead",
    "paciente",
    "richied",
    "dipend",
    "respons",
    "funcion",
    "klant",
    "behandel",
    "medewerk",
    "zgàasz",
    "osoba",
    "pracown",
    "müàteri",
    "sorumlu",
    "atanan",
    "customer",
    "caller",
    "requester",
    "reporter",
    "assignee",
    "contact",
    "owner",
    "author",
    "approver",
    "watcher",
    "agent",
    "user",
    "kontakt",
    "auftrag",
    "antrag",
    "teilnehm",
    "inhaber",
    "technik",
    "contact",
    "contatto",
    "utilis",
    "usuari",
    "t\xe9cnic",
    "tecnico",
    "titula",
    "intestatario",
    "b\xe9n\xe9fic",
    "aanvrager",
    "gebruiker",
    "ytkownik",
    "kullan",
    "leti\xe0im",
    "teknisyen",
    "utilizador",
)
_BY_NEEDS = (
    " von",
    " by",
    " to",
    " par",
    " por",
    " da",
    "zugewiesen",
    "schrieb",
    "gez.",
    "assign",
    "asigna",
    "assegna",
    "atribu",
    "door",
    "toegewezen",
    "przez",
    "przypis",
    "spoke",
    "durch",
    " an",
    " de",
    "rappeler",
    " a ",
    " di",
    " para",
    " van",
    " naar",
    " od",
    " do",
    "ytkownika",
)
_INTRODUCTION_NEEDS = (
    "name ist",
    "name lautet",
    "ich hei",
    "spricht",
    "m'appelle",
    "nom est",
    "llamo",
    "nombre es",
    "habla",
    "chiamo",
    "nome \xe8",
    "nome \xe9",
    "chamo",
    "naam is",
    "heet",
    "nazywam",
    "mam na",
    "ad\xe0m",
    "smim",
    "heter",
    "namn \xe4r",
    "hedder",
    "navn er",
    "nimeni",
    "jmenuji",
    "numele",
    "nachname",
    "vorname",
    "familienname",
    "nom est",
    "complet est",
    "famille est",
    "moi c'est",
    "apellido es",
    "completo es",
    "atiende",
    "cognome \xe8",
    "apelido \xe9",
    "sobrenome \xe9",
    "completo \xe9",
    "qui fala",
    "spreekt met",
    "nazwisko to",
    "tej strony",
    "sprechen mit",
    "go by",
    "call me",
    "numesc",
    "name is",
    "name:",
)
_WEAK_NEEDS = (
    "ich bin",
    "hier ist",
    "je suis",
    "ici",
    "c'est",
    "soy",
    "sono",
    "sou",
    "ik ben",
    "jestem",
    "ben",
    "jag \xe4r",
    "jeg er",
    "this is",
    "i am",
    "i'm",
    "habla",
)
_FILE_NEEDS = (
    ".pdf",
    ".doc",
    ".xls",
    ".odt",
    ".jp",
    ".png",
    ".txt",
    ".eml",
    ".msg",
    ".ppt",
    ".zip",
    ".tif",
    ".heic",
    ".rtf",
    ".mp",
    ".wav",
    ".od",
    ".gif",
    ".m4a",
    ".mov",
    ".vcf",
    ".ics",
    ".pst",
    ".csv",
    ".md",
    ".htm",
    ".pages",
    ".numbers",
    ".key",
    ".p7m",
    ".cer",
    ".7z",
    ".rar",
)


def is_known(word: str) -> bool:
    """Whether a list has a word as a name."""
    plain = word.title() if word.isupper() else word
    return plain in first_names() or plain in family_names() or plain in ambiguous_names()


def is_no_name(word: str) -> bool:
    """Whether a word is an everyday one of some language, and no list has it as a name."""
    return is_plain(word.lower()) and not is_known(word)


def told(value: str) -> bool | None:
    """Whether what stands behind a cue may be a name: no everyday word of any language, no thing."""
    words = value.replace("-", " ").split()
    if len(words[0]) < 2 or is_no_name(words[0]) or value.lower() in things():
        return False
    return None


def closes(value: str) -> bool | None:
    """The same at the end or the head of a letter, where a team stands as often: words alone are one."""
    return None if told(value) is None and not is_a_team(value) else False


def is_a_team(value: str) -> bool:
    """Whether all words of a run are everyday ones, and none is a given name: Le Service Client."""
    words = value.replace("-", " ").split()
    return all(is_plain(word.lower().strip(".,")) for word in words) and not any(
        word.title() in first_names() for word in words
    )


_NO_NAME = re.compile(
    r"(?:ish|ese|ian|ans?|ist|ic|ch|isch|ism|ese|\u00e4r)\Z|(?:Agile|Scrum|DevOps|HR|IT|QA|VIP|CEO|CTO|CFO|PM)\Z"
)
"""How words for peoples, faiths and roles end, which are capitalised too."""


_PARTICLES = frozenset(
    [
        "De",
        "Van",
        "Von",
        "Der",
        "Den",
        "Du",
        "Le",
        "La",
        "Di",
        "Del",
        "Della",
        "Ter",
        "Te",
        "Zu",
        "El",
        "Al",
    ]
)
"""Where a family name may begin with a capital: mevrouw De Wolff."""


def titled(value: str) -> bool | None:
    """The same behind a title: somebody may have the name of a town or of a company."""
    words = value.replace("-", " ").split()
    while len(words) > 1 and words[0] in _PARTICLES:
        del words[0]
    if len(words[0]) < 2 or is_no_name(words[0]):
        return False
    return None


def unlisted(value: str) -> bool | None:
    """Whether a word that no list has may be a name: as ``told``, and no people, faith, language or role."""
    words = value.replace("-", " ").split()
    if told(value) is False or (value.isupper() and not is_known(words[0])):
        return False
    if any(map(is_known, words)):
        return None
    if (
        len(words[0]) < 4
        or any(map(is_no_name, words))
        or any(w.lower() in things() for w in words)
    ):
        return False
    return False if _NO_NAME.search(words[-1]) else None


def in_query(value: str) -> bool | None:
    """The same for a value in the query of an address, whose words are joined by marks."""
    return unlisted(re.sub(r"\+|%20|_", " ", value))


def surname_in_small(value: str) -> bool | None:
    """Whether what follows a title in small letters is a family name, and no everyday word."""
    return None if not is_plain(value) and value not in things() else False


def likely(value: str) -> bool | None:
    """The same where other words stand there as often: a name that lists have, or two words at least."""
    words = value.replace("-", " ").split()
    if told(value) is False or any(map(is_no_name, words)):
        return False
    return None if any(map(is_known, words)) or (len(words) > 1 and not value.isupper()) else False


_TITLED = re.compile(
    r"\b(?:Herrn?|Frau|Mr|Mrs|Ms|Dr|Prof|M|Mme|Mlle|Sr|Sra|Srta|Sig|Sig\.ra|Pan|Pani|[Hh]eer|[Mm]evrouw|[Mm]eneer|Don|Do\xf1a|[Ss]e\xf1ora?|[Ss]ignora?|[Ss]enhora?|Madame|Monsieur)\.?[ \xa0]\Z"
)


def has_a_title(text: str, start: int) -> bool:
    """Whether a title of a person stands right before a place, so that a verb of trade says nothing."""
    return _TITLED.search(text, max(0, start - 14), start) is not None


def _no_company(text: str, start: int, end: int) -> bool:
    words = text[start:end].split()
    is_named = len(words) > 1 and words[0].title() in first_names()
    if within_a_thing(text, start, end):
        return False
    return not is_a_company(text, start, end, is_named=is_named or has_a_title(text, start))


def _name(name: str, regex: str, *needs: str, check: object = told, wide: bool = False) -> Rule:
    return Rule(
        f"told_name_{name}", "PERSON", regex, 0.8, 1, needs=needs, check=check, around=_no_company, ignore_case=False, wide=wide,  # type: ignore[arg-type]
    )  # fmt: skip


_HAN = r"[^\P{Han}\u6765\u8bf4\u5728\u548c\u7684\u662f\u6709\u8981\u5df2\u4e86\u6253\u8bf7\u95ee\u60a8\u4f60\u6211\u4ed6\u5979\u5904\u63d0\u53cd\u5148\u5973\u5c0f\u7535\u5df2]"
_SURNAMES = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏韦付方白邹"
    "孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤張劉陳楊黃趙吳孫馬鄭謝許韓馮鄧葉蘇魏呂盧鍾譚陸"
)
_ZH = (
    rf"((?:欧阳|上官|司马|诸葛|东方|皇甫|尉迟|公孙|慕容|司徒|夏侯|令狐|[{_SURNAMES}]){_HAN}{{1,2}})"
)
_JA_SURNAMES = (
    "佐藤|鈴木|高橋|田中|伊藤|渡辺|渡邊|山本|中村|小林|加藤|吉田|山田|佐々木|山口|松本|井上|木村|林|斎藤|斉藤|清水|山崎|森|池田|橋本|阿部|石川|山下|中島|石井|小川|前田|岡田|"
    "長谷川|藤田|後藤|近藤|村上|遠藤|青木|坂本|福田|太田|西村|藤井|金子|岡本|藤原|中野|三浦|原田|中川|松田|竹内|小野|田村|中山|和田|石田|森田|上田|原|内田|柴田|酒井|宮崎|横山|高木|"
    "安藤|宮本|大野|小島|谷口|工藤|今井|高田|増田|丸山|杉山|村田|大塚|新井|小山|平野|藤本|河野|上野|野口|武田|松井|千葉|岩崎|菅原|木下|久保|佐野|野村|松尾|市川|菊地|杉本|古川|大西|島田|水野|桜井|吉川|山内|西田"
)
_JA = r"([\p{Han}]{1,4}[ \u3000]?(?:[\p{Han}]{1,3}|[\p{Hiragana}\p{Katakana}ー]{2,4}))"
_JA_LISTED = rf"((?:{_JA_SURNAMES})[ \u3000]?(?:[\p{{Han}}]{{1,3}}|[\p{{Hiragana}}]{{2,3}}|[\p{{Katakana}}ー]{{2,5}}))"
_KO = "([김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노하곽성차주우구민진지엄채원천방공현함변염여추도소석선설마길연위표명기반왕금옥육맹제모탁국어은편용]\\p{Hangul}{2})"
_TWO_HI = r"([\p{Devanagari}]{2,}(?: [\p{Devanagari}]{2,}){1,2}?)"
_TWO_AR = r"([\p{Arabic}]{2,} [\p{Arabic}]{2,})"
_TWO_HE = r"([\p{Hebrew}]{2,} [\p{Hebrew}]{2,})"
_RU = r"(\p{Lu}\p{Ll}+(?:[ \-]\p{Lu}\p{Ll}+){0,2})"


def _no_role(value: str) -> bool | None:
    return (
        False
        if value in ("担当者", "責任者", "関係者", "利用者", "管理者", "한국인", "고객", "お客")
        else None
    )


TOLD_NAMES: tuple[Rule, ...] = (
    _name("title", rf"(?:^|[\s(\"',;:>*|/]){_TITLES}[ \xa0]+(?:Dr\.|Prof\.)?[ ]?{_NAME}", *_TITLE_NEEDS, check=titled),
    _name("introduced", rf"(?:^|[\s.,;:!?(\"'>*]){_INTRODUCTIONS} {_NAME}", *_INTRODUCTION_NEEDS),
    _name("weakly_introduced", rf"(?:^|[.!?:,\n] ?){_WEAK_INTRODUCTIONS} {_NAME}", *_WEAK_NEEDS, check=likely),
    _name("role", rf"(?:^|[\s(\"',;>*|\[]){_ROLES}(?: is)?(?:\*{{0,2}}[ ]?[:=][ ]?\*{{0,2}} {{0,2}}| ){_NAME}", *_ROLE_NEEDS, check=likely),
    _name("part", rf"(?:^|[\s(\"',;{{>*|\[])[\"']?(?i:{_PARTS})[\"']?\*{{0,2}}[ \t]{{0,20}}[:=]\*{{0,2}}[ \t]{{0,3}}[\"']?{_NAME}", *_PART_NEEDS),
    _name("beside_part", rf"(?i:{_PARTS})[ \t]{{0,3}}[:=][^\n]{{1,60}}\r?\n[ \t>*\-]*(?i:{_WHOLES})[ \t]{{0,20}}[:=][ \t]{{0,3}}{_NAME}", *_PART_NEEDS),
    _name("before_part", rf"(?:^|[\s\-])(?i:{_WHOLES})[ \t]{{0,20}}[:=][ \t]{{0,3}}{_NAME}[ \t]*\r?\n[ \t>*\-]*(?i:{_PARTS})[ \t]{{0,3}}[:=]", *_PART_NEEDS),
    _name("element", rf"<(?i:{_PARTS}|author|creator|editor|contact|owner|customer|employee|person|recipient|sender)[^<>\n]{{0,40}}>[ \t\n]{{0,20}}{_NAME}[ \t\n]{{0,20}}</", "</", ),
    _name("vcard", rf"^N(?:;[^:\n]{{0,40}})?:{_NAME};", "n:", "n;"),
    _name("vcard_given", rf"^N(?:;[^:\n]{{0,40}})?:[^;\n]{{0,40}};{_NAME}(?:;|$)", "n:", "n;"),
    _name("common", rf"\b(?:CN|cn)=\\?[\"']?{_NAME}(?:[,;\"'\\:]|$)", "cn=", check=likely),
    _name("mention", rf"(?:^|\s)@{_TWO}", "@", check=likely),
    _name("bare_salutation", rf"\A(?:@)?((?:{_WORD})),[ \t]?\r?\n[ \t]*\r?\n", ",\n", ",\r", ", \n", ", \r", ",\t"),
    _name("label", rf"{_LINE}{_LABELS}\*{{0,2}}[ ]?[:=]\*{{0,2}}[ ]{{1,2}}{_NAME}", ": ", "= ", "* ", check=likely),
    _name("by", rf"\b{_BY}:? {_NAME}", *_BY_NEEDS, check=likely),
    _name("salutation", rf"(?:^|\n|[.!] ){_SALUTATIONS} (?:{_TITLES} )?{_NAME}[ ]?[,:!\n]", *_SALUTATION_NEEDS, check=closes),
    _name("closing", rf"(?:^|\n|[.!?,] ){_CLOSINGS}{_NAME}[ .\t]*(?:\r?\n|$)", "\n", check=closes),
    _name("writes", rf"{_TWO}(?: <[^>\n]{{3,80}}>)? (?:wrote|a \xe9crit|schrieb|escribi\xf3|ha scritto|escreveu|schreef|napisa\xe0\xe0?a?)[ ]?:", "wrote", "crit", "schrieb", "escribi", "scritto", "escreveu", "schreef", "napisa", check=likely),
    _name("meeting", rf"(?i:\b(?:1:1|1-1|one-on-one|lunch|coffee|dinner|breakfast|drinks|calls?|meetings?|sync|interview|catch-?up|appointment|intro|chat|termin|treffen|jour fixe|mittagessen|gespr\xe4ch|d\xe9jeuner|r\xe9union|rendez-vous|rdv|point|entretien|cita|reuni\xf3n|comida|entrevista|pranzo|riunione|colloquio|incontro|afspraak|overleg|gesprek|reuni\xe3o|almo\xe7o|spotkanie)(?: (?:call|meeting))? (?:with|w/|mit|avec|con|com|met|z)) (?:{_TITLES} )?{_NAME}", " with", " w/", " mit", " avec", " con", " com", " met", " z ", check=likely),
    _name("event", rf"(?i:\b(?:interview|birthday|geburtstag|anniversaire|cumplea\xf1os|compleanno|verjaardag|farewell|abschied|onboarding|1:1))(?::| -| of| von| de| di| van)? {_TWO}", "interview", "birthday", "geburtstag", "anniversaire", "cumplea", "compleanno", "verjaardag", "farewell", "abschied", "onboarding", "1:1", check=likely),
    _name("let", rf"(?i:\b(?:have|let|tell|ask|remind|inform|told|asked|ping|cc|copy|invite|loop in|thank|contact|meet)) {_NAME} (?:(?:to|know|look|check|take|handle|about|that|whether|if|when|for|on|and|by|in|review|do|fix|send|call)\b)", "have ", "let ", "tell ", "ask", "remind", "inform", "told ", "ping ", "cc ", "copy ", "invite ", "loop in", "thank ", "contact ", "meet ", check=unlisted),
    _name("asked", rf"(?:\b(?i:frag(?:e|t|en)?|sprich|sprecht|sag|red(?:e|et)?|demande[rz]?|parle[rz]?|dis|vois|pregunt[ae](?:le|r)?|habla(?:r|d)?|dile|(?:decir|pedir|preguntar|contar|avisar|enviar|mandar|escribir|dar|pasar|llamar|entregar)(?:le|les|lo|la)?|(?:dire|chiedere|mandare|inviare|scrivere|parlare|telefonare)|(?:dizer|pedir|perguntar|entregar)|(?:dire|demander|envoyer|donner|parler|\xe9crire|transmettre)|consulta|avisa|chiedi(?:lo)?|parla(?:re|te)?|senti|scrivi|fala(?:r|em)?|pergunta(?:r)?|pede|avise|vraag|praat|overleg|zapytaj|porozmawiaj|pogadaj|powiedz|napisz)"
          rf"(?: (?:mal|bitte|doch|lieber|es|het|lo|mejor|direkt|directement|avec|mit|con|com|met|z|do|a|\xe0|aan|ao?|dem|der|den|die|o)){{1,3}}) {_NAME}", "frag", "spr", "sag", "red", "demande", "parle", "dis ", "vois ", "pregunt", "habla", "dile", "decir", "pedir", "contar", "avisar", "enviar", "mandar", "escribir", "dar", "pasar", "llamar", "entregar", "dire", "chieder", "inviare", "parlare", "telefonare", "dizer", "perguntar", "envoyer", "donner", "parler", "\xe9crire", "transmettre", "consulta", "avisa", "chiedi", "parla", "senti", "scrivi", "fala", "pergunta", "pede", "avise", "vraag", "praat", "overleg", "zapytaj", "pogadaj", "porozm", "powiedz", "napisz", check=unlisted),
    _name("or_with", rf"\b(?i:fala(?:r)?|habla(?:r)?|parla(?:re)?|sprich|praat) (?i:con|com|mit|met) (?:[oa] |den |der |dem )?(?:{_WORD})(?: (?:{_WORD})){{0,2}} (?i:ou|o|oder|of|e|y|und|en) (?:(?:com|con|mit|met) )?(?:[oa] |den |der |dem )?{_NAME}", "fala", "habla", "parla", "sprich", "praat", check=unlisted),
    _name("relative", rf"(?i:\b(?:my|his|her|our|their|mein|meine[rmn]?|unser[e]?|ma|mon|mi|mia|mio|minha|meu|mijn|m\xf3j|moja)) (?i:husband|wife|son|daughter|brother|sister|mother|father|mum|mom|dad|boss|colleague|co-?worker|manager|friend|assistant|partner|neighbou?r|client|landlord|tenant|cousin|uncle|aunt|doctor|teacher|team ?mate|chef|chefin|kollegin|kollege|freundin|freund|nachbarin|nachbar|mann|frau|sohn|tochter|bruder|schwester|mutter|vater|coll\xe8gue|ami|amie|voisin|voisine|fr\xe8re|soeur|m\xe8re|p\xe8re|mari|femme|fils|fille|patron|compa\xf1er[oa]|amig[oa]|vecin[oa]|herman[oa]|marido|espos[oa]|madre|padre|hij[oa]|jefe|jefa|colleg[ah]|amic[oa]|vicin[oa]|fratello|sorella|marito|moglie|figli[oa]|capo|colega|vizinh[oa]|irm\xe3o?|filh[oa]|collega|vriend|vriendin|buurman|buurvrouw|broer|zus|zoon|dochter|vrouw|kolega|kole\xe0anka|s\xe0siad|s\xe0siadka|brat|siostra|m\xe0\xe0|\xe0ona),? {_NAME}", "my ", "his ", "her ", "our ", "their ", "mein", "unser", "ma ", "mon ", "mi ", "mi", "minha", "meu", "mijn", "m\xf3j", "moja", check=unlisted),
    _name("i_am", rf"(?:^|[.!?,\n] ?)(?i:i'm|i am|this is|hi,? it's|ich bin|hier ist|ik ben|soy|sono|jestem|je suis) {_NAME}(?:[.,!?\n]| (?:and|from|your|here|und|aus|et|y|e|i|en|uit|von|de|di|z)\b|$)", *_WEAK_NEEDS, "it's", check=unlisted),
    _name("of_a_letter", rf"(?i:\b(?:e-?mails?|mails?|letter|message|note|card|invoice|contract|apology|invitation|reminder|reference|bio|cv|resume|profile|booking|reservation|appointment|login|brief|nachricht|einladung|k\xfcndigung|rechnung|vertrag|schreiben|anmeldung|anruf|mot|lettre|courriel|facture|contrat|connexion|appel|r\xe9servation|carta|correo|mensaje|factura|contrato|llamada|reserva|messaggio|lettera|fattura|contratto|chiamata|telefonata|prenotazione|mensagem|fatura|chamada|liga\xe7\xe3o|bericht|factuur|reservering|list|wiadomo\xe0\xe0|faktura|umowa|rezerwacja)) (?i:to|for|from|about|of|by|with|an|f\xfcr|von|mit|\xe0|pour|de|avec|par|para|a|con|al|per|di|da|com|aan|voor|van|met|do|dla|od|z) (?:{_TITLES} )?{_TWO}", "mail", "letter", "message", "note", "card", "invoice", "contract", "apology", "invitation", "reminder", "reference", "bio", "cv ", "resume", "profile", "booking", "reserv", "appointment", "login", "brief", "nachricht", "einladung", "ndigung", "rechnung", "vertrag", "schreiben", "anmeldung", "anruf", "mot ", "lettre", "courriel", "fact", "contrat", "connexion", "appel", "r\xe9serv", "carta", "correo", "mensa", "llamada", "messaggio", "lettera", "fattura", "chiamata", "telefonata", "prenotazione", "fatura", "chamada", "bericht", "list ", "wiadomo", "faktura", "umowa", "rezerwacja", check=likely),
    _name("relative_of", rf"(?i:\b(?:wife|husband|son|daughter|brother|sister|mother|father|boss|assistant|manager|friend|hermano|hermana|hijo|hija|padre|madre|marido|esposa|amigo|amiga|fr\xe8re|soeur|fils|fille|m\xe8re|p\xe8re|mari|femme|bruder|schwester|sohn|tochter|mutter|vater|frau|mann|fratello|sorella|figlio|figlia|marito|moglie|irm\xe3o|irm\xe3|filho|filha|broer|zus|zoon|dochter|vrouw|brat|siostra|syn|c\xf3rka)) (?i:of|de|von|di|van) {_NAME}", "wife", "husband", "son", "daughter", "brother", "sister", "mother", "father", "boss", "assistant", "manager", "friend", "herman", "hij", "padre", "madre", "marido", "esposa", "amig", "fr\xe8re", "soeur", "fil", "m\xe8re", "p\xe8re", "mari", "femme", "bruder", "schwester", "tochter", "mutter", "vater", "frau", "mann", "fratello", "sorella", "figli", "moglie", "irm\xe3", "broer", "zus", "zoon", "dochter", "vrouw", "brat", "siostra", "syn ", "c\xf3rka", check=unlisted),
    _name("role_alone", rf"(?:^|[\s(\"',;>*|\[])(?:[Mm]onteurs?|[Tt]echniker(?:in)?|[Ff]ahrer(?:in)?|[Vv]ertreter(?:in)?|[Hh]ausmeister(?:in)?|[Pp]raktikant(?:in)?|[Aa]zubi|[Cc]hauffeur|[Bb]ezorger|[Bb]uurman|[Bb]uurvrouw|[Cc]ollega|[Tt]echnicien(?:ne)?|[Ll]ivreur|[Vv]oisine?|[Ss]tagiaire|[Cc]oll\xe8gue|[Rr]epartidor|[Vv]ecin[oa]|[Cc]ompa\xf1er[oa]|[Tt]\xe9cnic[oa]|[Vv]icin[oa]|[Aa]utista|[Cc]orriere|[Vv]izinh[oa]|[Mm]otorista|[Ee]ntregador|[Kk]ierowca|[Ss]\xe0siad(?:ka)?|[Kk]om\xe0u(?:m|muz)?|[Tt]echnician|[Ee]lectrician|[Pp]lumber|[Cc]arer|[Cc]ourier|[Nn]eighbou?r|[Rr]eceptionist|[Tt]utor|[Ii]ntern|[Tt]rainee|[Ss]upervisor|[Cc]oach|[Bb]abysitter|[Gg]ardener|[Ss]olicitor|[Ll]awyer|[Aa]ccountant|[Dd]entist|[Tt]herapist|Kundin|Kunde|Patient(?:in)?|Mieter(?:in)?|Anrufer(?:in)?|Kolleg(?:e|in)|Nachbar(?:in)?|Bewerber(?:in)?|Benutzer(?:in)?|[Cc]ustomer|[Pp]atient|[Tt]enant|[Cc]lient[ea]?|[Pp]atiente|[Pp]aciente|[Pp]aziente|[Kk]lant|[Pp]acjent(?:ka)?|[Kk]lient(?:ka)?) {_NAME}(?:[ ,.;:(!?\n]|$)", "monteur", "technik", "fahrer", "vertreter", "hausmeister", "praktikant", "azubi", "chauffeur", "bezorger", "buur", "collega", "technic", "livreur", "voisin", "stagiaire", "coll\xe8gue", "repartidor", "vecin", "compa\xf1er", "t\xe9cnic", "vicin", "autista", "corriere", "vizinh", "motorista", "entregador", "kierowca", "siad", "kom\xe0u", "electrician", "plumber", "carer", "courier", "neighbo", "receptionist", "tutor", "intern ", "trainee", "supervisor", "coach", "babysitter", "gardener", "solicitor", "lawyer", "accountant", "dentist", "therapist", "kund", "patient", "mieter", "anrufer", "kolleg", "nachbar", "bewerber", "benutzer", "customer", "tenant", "client", "paciente", "paziente", "klant", "pacjent", "klient", check=unlisted),
    _name("in_query", rf"[?&](?i:name|full_?name|customer|contact|first_?name|last_?name|sur_?name|given_?name|family_?name|passenger|guest|author|recipient|person|employee|patient|nachname|vorname|nom|prenom|nombre|apellido|cognome|nome)=((?:{_WORD})(?:(?:\+|%20|_)(?:{_WORD})){{0,3}})(?:[&#\s\"')>]|$)", "=", check=in_query),
    _name("ends_with", rf"(?:h\xe4lsar|h\xe4lsningar|hilsen|hilsner|Mvh|terveisin|terveisi\xe4|[Pp]ozdrawiam|[Pp]ozdravem|d\xe0kuji|[Gg]roetjes|[Gg]roet|LG|VG|[Ss]aludos|[Bb]ises|[Bb]isous|[Bb]aci|[Bb]esos|[Bb]eijinhos|[Aa]bra\xe7os|[Bb]eijos|Gr\xfc\xdfe von),? {_NAME}[ .!]*(?:\r?\n|$)", "h\xe4lsa", "h\xe4lsning", "hils", "mvh", "terveis", "pozdr", "kuji", "groet", "lg ", "lg,", "vg ", "vg,", "saludos", "bises", "bisous", "baci", "besos", "beijinhos", "abra\xe7os", "beijos", "gr\xfc\xdfe", check=unlisted),
    _name("small_title", r"(?:^|[\s(,;:])(?:mr|mrs|miss|herr|frau|se\xf1ora?|signora?|mevrouw|meneer|madame|monsieur|pani)\.? ([a-z\xdf-\xf6\xf8-\xff]{3,24})(?:[\s.,;:!?)]|$)", "mr", "miss ", "miss.", "herr", "frau", "se\xf1or", "signor", "mevrouw", "meneer", "madame", "monsieur", "pani", check=surname_in_small),
    _name("polite", rf"{_NAME} (?:Bey|Han\xe0m)\b", "bey", "han", check=told),
    _name("zh", rf"(?:我叫|我是|名叫|名字是|姓名是?|联系人|客户|用户|申请人|处理人|负责人|经办人|收件人|寄件人|员工|患者|病人|报告人|同事)[:：是为\s]{{0,2}}{_ZH}", "我叫", "我是", "名叫", "名字是", "姓名", "联系人", "客户", "用户", "申请人", "处理人", "负责人", "经办人", "收件人", "寄件人", "员工", "患者", "病人", "报告人", "同事", wide=True, check=None),
    _name("zh_titled", rf"{_ZH}(?:先生|女士|小姐|老师|经理|同学|医生|总监|主任)", "先生", "女士", "小姐", "老师", "经理", "同学", "医生", "总监", "主任", wide=True, check=None),
    _name("ja_labelled", rf"(?:氏名|お?名前|担当者?|報告者|申請者|依頼者|患者名?|顧客名?|社員名?|宛名)[:：はが\s]{{1,2}}{_JA}(?:です|様|さん|と申|[、。,\s(（」]|$)", "氏名", "名前", "担当", "報告者", "申請者", "依頼者", "患者", "顧客", "社員", "宛名", wide=True, check=_no_role),
    _name("ja_introduced", rf"(?:私は|わたしは|僕は|こちらは|お客様の)?{_JA_LISTED}(?:です|と申|といい|様|さん|氏|殿|から|より)", "です", "と申", "といい", "様", "さん", "氏", "殿", "から", "より", wide=True, check=None),
    _name("ja_said", rf"{_JA}と申し", "と申し", wide=True, check=_no_role),
    _name("ko", rf"(?:이름은|이름|성명|성함은?|저는|담당자|신청자|고객|환자|직원|작성자|보고자|안녕하세요,?)[ :：]{{0,2}}{_KO}(?:입니다|이고|이라고|라고|예요|이에요|님|씨|[,\s.]|$)", "이름", "성명", "성함", "저는", "담당자", "신청자", "고객", "환자", "직원", "작성자", "보고자", "안녕하세요", wide=True, check=_no_role),
    _name("ko_titled", rf"{_KO} ?(?:씨|님|과장|부장|대리|사원|팀장|선생님)(?:[이가은는을를에의께로\s,.]|$)", "씨", "님", "과장", "부장", "대리", "사원", "팀장", wide=True, check=_no_role),
    _name("hi", rf"(?:मेरा नाम|नाम|ग्राहक|श्रीमती|श्री|रोगी|मैं)[ :]{{1,2}}{_TWO_HI}(?: (?:है|हूँ|हूं|जी|ने|से)|[,\n।]|$)", "नाम", "ग्राहक", "श्री", "रोगी", "मैं", wide=True, check=None),
    _name("ar", rf"(?:اسمي|الاسم|العميلة?|السيدة?|الموظفة?|المريضة?|المسؤولة?)[ :]{{1,2}}{_TWO_AR}", "اسمي", "الاسم", "العميل", "السيد", "الموظف", "المريض", "المسؤول", wide=True, check=None),
    _name("ar_introduced", rf"أنا {_TWO_AR}(?:[.،,\n]|$)", "أنا", wide=True, check=None),
    _name("he", rf"(?:שמי|קוראים לי|שם|שם הלקוחה?|פונה|לקוחה?|מר|גב'|גברת|איש קשר|מטופלת?|עובדת?)[ :]{{1,2}}{_TWO_HE}(?:[.,\n]|$| )", "שמי", "קוראים לי", "שם", "פונה", "לקוח", "מר", "גב'", "גברת", "איש קשר", "מטופל", "עובד", wide=True, check=None),
    _name("he_introduced", rf"אני {_TWO_HE}(?:[.,\n]|$)", "אני", wide=True, check=None),
    _name("ru", rf"(?:[Мм]еня зовут|[Мм]о[её] имя|[Кк]лиент(?:ка)?|[Зз]аявитель(?:ница)?|[Ии]сполнитель|[Оо]тветственн(?:ый|ая)|[Уу]важаем(?:ый|ая)|[Гг]осподин|[Гг]оспожа|[Гг]-жа|[Гг]-н|ФИО|[Ии]мя|[Фф]амилия|[Кк]онтакт|[Аа]втор|[Пп]ользователь|[Оо]братил(?:ся|ась)|[Сс]отрудни(?:к|ца)|[Пп]ациент(?:ка)?|[Уу]важением,?)[ :\n]{{1,3}}{_RU}", "меня зовут", "имя", "клиент", "заявител", "исполнител", "ответственн", "уваж", "господин", "госпожа", "г-жа", "г-н", "фио", "фамилия", "контакт", "автор", "пользователь", "обратил", "сотрудни", "пациент", wide=True),
    _name("ru_introduced", rf"(?:^|[.!?] )(?:Я|Это),? {_RU}(?:[.,\n]|$)", "я ", "я,", "это ", "это,", wide=True),
    _name("folder_of", rf"[/\\](?i:clients?|customers?|patients?|employees?|staff|people|persons?|candidates?|applicants?|tenants?|students?|members?|personnel|kunden|mitarbeiter|patienten|bewerber|mandanten|clientes|pacientes|empleados|clienti|pazienti|dipendenti|salari\xe9s|employ\xe9s|klanten|medewerkers|klienci|pracownicy)[/\\]((?:{_WORD})(?:[ _.,\-]{{1,2}}(?:{_WORD})){{1,3}})(?:[/\\.]|$)", "client", "customer", "patient", "employee", "staff", "people", "person", "candidate", "applicant", "tenant", "student", "member", "kunden", "mitarbeiter", "bewerber", "mandanten", "pacientes", "empleados", "pazienti", "dipendenti", "salari\xe9s", "employ\xe9s", "klanten", "medewerkers", "klienci", "pracownicy", check=in_query),
    _name("deputy", rf"(?:^|[\s(;,.])(?:Vertretung|Stellvertretung|Stellvertreter(?:in)?|Sachbearbeiter(?:in)?|Betreuer(?:in)?|Leitung|Moderation|Referent(?:in)?|Protokollf\xfchrer(?:in)?|[Rr]empla\xe7ante?|[Ii]nterlocut(?:eur|rice)|[Ss]uppl\xe9ante?|[Ss]uplente|[Ee]ncargad[oa]|[Rr]eferente|[Ss]ostitut[oa]|[Ii]nterviewers?|[Dd]eputy|[Ss]tand-in|[Cc]over|[Oo]n[ -]call|[Pp]rimary|[Ss]econdary|[Cc]onsignee|[Cc]andidate|[Pp]assenger|[Pp]ayee|[Dd]river|[Ii]nstructor|[Tt]utor)[ ]?: {_NAME}", "vertret", "sachbearbeit", "betreuer", "leitung", "moderation", "referent", "protokoll", "rempla\xe7ant", "interlocut", "suppl", "encargad", "sostitut", "interviewer", "deputy", "stand-in", "cover", "call", "primary", "secondary", "consignee", "candidate", "passenger", "payee", "driver", "instructor", "tutor", check=unlisted),
    _name("second", rf"\b(?:MM\.|Mmes|Messrs\.?|Herren|Sres\.|Sras\.|Sigg\.|Drs\.) (?:{_WORD})(?: (?:{_WORD}))?(?:, (?:{_WORD}))? (?:et|and|und|y|e|ed) {_NAME}", "mm.", "mmes", "messrs", "herren", "sres.", "sras.", "sigg.", "drs.", check=titled),
    _name("folder", rf"[/\\]([{_UP}][\w\xc0-\xff]+[ _.,\-]{{1,2}}[{_UP}][\w\xc0-\xff.,' \-]*)[/\\]", "/", "\\", check=None),
    _name("file", r"([\w\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\xff.,'()\[\] \-]{3,90})\.(?i:pdf|docx?|xlsx?|odt|ods|jpe?g|png|gif|txt|eml|msg|pptx?|zip|tiff?|heic|rtf|mp[34]|mov|wav|m4a|vcf|ics|pst|csv|md|html?|pages|numbers|key|p7m|cer|7z|rar)\b", *_FILE_NEEDS, check=None),
)  # fmt: skip
