"""Values whose key says what they are: ``{"password": "…"}``, ``{"date_of_birth": "…"}``."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from string import hexdigits
from typing import NamedTuple

from governance.detect.finding import Finding, Unit
from governance.detect.names.key_names import key_words
from governance.detect.phones import is_valid_anywhere
from governance.detect.rules import checks
from governance.detect.rules.account_checks import (
    mentioned,
    named_after_somebody,
    person_account,
    told_account,
)
from governance.detect.rules.identity_numbers import identity_keys
from governance.detect.rules.password_checks import stands_for_one

BIOMETRIC_KEY = re.compile(
    r"(?:^|_)(?:(?:finger|thumb|palm|voice|foot|face)_?prints?|biometrics?|minutiae|face_?id|voice_?id|"
    r"(?:iris|retinal?|palm_?vein|facial|face|hand|gait|ear|voice|speaker|dna|genetic)_"
    r"(?:scans?|codes?|images?|templates?|embeddings?|encodings?|vectors?|profiles?|signatures?|hash|"
    r"prints?|maps?|descriptors?|samples?|data|records?|enrol+ments?|geometry|token|id|number))(?:_|$)"
)
"""Keys under which everything is a biometric record, however deep."""
IDENTIFIER_KEY = re.compile(
    r"(?:^|_)(?:id|ids|identifier|number|num|no|nr|code|serial|ref|reference|guid|uuid|barcode|badge|"
    r"account|permit|registration|accession|medicaid|medicare|fin|case|visit|rx)$"
)
"""Keys whose value is a number or code for something."""
NO_IDENTIFIER_KEY = re.compile(
    r"(?:^|_)(?:call|tool|tool_call|tool_use|model|response|status|error|exit|http|return|result|reason|icd|"
    r"icd_?10|icd_?9|cpt|hcpcs|loinc|snomed|rxnorm|ndc|drg|cvx|diagnosis|procedure|country|currency|"
    r"language|lang|state|line|page|version|port|step|row|column|chapter|section|source|color)_"
    r"(?:id|number|num|no|nr|code|ref|reference)$"
)
"""Keys of codes that say what something is, and of what a call and its answer are joined by."""
_CONSTANT = re.compile(r"[A-Z]+(?:_[A-Z0-9]+)*\Z")
_TYPE_WORD = re.compile(
    r"(?i)(?:string|str|text|number|integer|int|boolean|bool|object|array|null|none|any)\Z"
)
_DATE = re.compile(
    r"\d{1,4}[/.\- ]\d{1,2}[/.\- ]\d{1,4}|[A-Za-z]{3,9}\.? \d{1,2}|\d{1,2}[ \-]?[A-Za-z]{3,9}"
)


_PLAIN_DATE = re.compile(r"(?:19|20)\d\d(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))?\Z")
"""A day without any mark between its parts, or a year alone."""


def _secret(value: str) -> bool:
    return (
        4 <= len(value) <= 4000
        and not _CONSTANT.match(value)
        and not _TYPE_WORD.match(value)
        and "<" not in value
        and "{" not in value
        and value.count(" ") < 8
        and not stands_for_one(value)
    )


def _random_token(value: str) -> bool:
    return " " not in value and checks.long_token(value)


def _identifier(value: str) -> bool:
    return 3 <= len(value) <= 40 and any(char.isdigit() for char in value) and value.count(" ") < 3


def _account(value: str) -> bool:
    return 6 <= sum(char.isdigit() for char in value) <= 20 and len(value) <= 30


_PHONE = re.compile(r"\+?[\d ()./\-]{7,24}\Z")


def _phone(value: str) -> bool:
    return (
        _PHONE.match(value) is not None
        and 7 <= sum(map(str.isdigit, value)) <= 15
        and len(set(checks.digits_of(value))) > 1
    )


def _valid_phone(value: str) -> bool:
    """Whether a value is a phone number by itself: what a key like "to" says is little."""
    return _phone(value) and len(checks.digits_of(value)) >= 10 and is_valid_anywhere(value)


def _plain_account(value: str) -> bool:
    return 8 <= len(value) <= 24 and value.replace(" ", "").replace("-", "").isdigit()


def _user(value: str) -> bool:
    return (
        3 <= len(value) <= 60
        and " " not in value
        and not _CONSTANT.match(value)
        and value.replace(".", "").replace("_", "").replace("-", "").isalnum()
        and (
            any(char.isdigit() for char in value)
            or any(char in "._" for char in value)
            or told_account(value) is True
        )
        and person_account(value) is True
    )


def _account_of_somebody(value: str) -> bool:
    """Whether this is one word made of somebody's name; several are the name itself."""
    return " " not in value and named_after_somebody(value)


def _numbered(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= 4 and len(value) <= 60 and " " not in value.strip()


def _insured(value: str) -> bool:
    return _numbered(value) and _DATE.fullmatch(value) is None


def _identity(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= 4 and len(value) <= 30 and value.count(" ") < 7


def _plate(value: str) -> bool:
    return 4 <= len(value) <= 17 and any(char.isdigit() for char in value) and not value.isdigit()


def _plate_in_capitals(value: str) -> bool:
    """Whether a value is a plate behind a short or a foreign word for one."""
    return _plate(value) and value == value.upper() and (len(value) < 13 or len(value) == 17)


_DOCUMENT = re.compile(r"[A-Z]{0,3} ?\d[\d ]{4,9}\d[A-Z]{0,2}\Z")


def _document(value: str) -> bool:
    """Whether a value has the form of a passport's number."""
    return _DOCUMENT.match(value) is not None


def _hardware(value: str) -> bool:
    digits = value.replace(":", "").replace("-", "").replace(".", "")
    return len(digits) in (12, 16) and set(digits) <= set(hexdigits)


_AGE = re.compile(
    r"(\d{1,3})(?: ?(?:years?(?: old)?|yrs?|y/?o|jahre(?: alt)?|j\.|ans|años|anni|anos|jaar|lat|år|vuotta|v\.?|éves|let|roků|ani|yaşında|лет|год[а]?|岁|歲|歳|才|세|살|वर्ष|साल|xronon|ετών))?\Z",
    re.IGNORECASE,
)


def _age(value: str) -> bool:
    """Whether a value is a number of years that somebody may have lived."""
    age = _AGE.match(value)
    return age is not None and 0 < int(age[1]) < 130


_SMALLEST_ADDRESS = 1 << 24


def _address_number(value: str) -> bool:
    """Whether a number is an address of version 4, as databases keep one."""
    return (
        8 <= len(value) <= 10
        and value.isdigit()
        and _SMALLEST_ADDRESS <= int(value) < 1 << 32
        and checks.ip_address(str(ip_address(int(value))))
    )


_EXACT = r"[+-]?\d{1,3}\.\d{4,}"
_PLACE_KEYS = (
    r"lat|latitude|lon|lng|long|longitude|lat_?(?:lon|lng|long)|coord(?:inate)?s?|"
    r"gps(?:_?(?:position|location))?|(?:geo_?)?(?:location|point|position)|geo"
)
_COORDINATES = re.compile(rf"{_EXACT}(?:[,;] ?{_EXACT})?\Z")
"""Degrees to ten metres and less: where somebody stands, not which town it is."""


def _coordinates(value: str) -> bool:
    return _COORDINATES.match(value) is not None


def _place(value: str) -> bool:
    return 2 <= len(value) <= 60 and not any(char.isdigit() for char in value)


def _birth(value: str) -> bool:
    return len(value) <= 40 and (_DATE.search(value) or _PLAIN_DATE.match(value)) is not None


def _address(value: str) -> bool:
    return (
        6 <= len(value) <= 200
        and any(c.isdigit() for c in value)
        and (" " in value or max(value) > "\u2e80")
        and "@" not in value
    )


def _recorded(value: str) -> bool:
    return any(char.isdigit() for char in value) or (len(value) > 40 and " " not in value)


def _code(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= 3 and len(value) <= 80 and value.count(" ") < 5


_BEGIN = "(?:^|_)"
"""What all patterns of keys begin with."""


_PLACE_KEY = re.compile(rf"{_BEGIN}(?:{_PLACE_KEYS})$")


class _Key(NamedTuple):
    entity: str
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool]
    but: re.Pattern[str] | None = None
    """Keys that the pattern fits and that are not meant."""
    inherited: bool = False
    """Whether a key speaks for everything under it."""

    def speaks(self, words: tuple[str, ...]) -> bool:
        """Whether the last of a value's keys, or one above it, says that it is this."""
        if self.inherited:
            return any(self.pattern.search(word) for word in words)
        if not words or not self.pattern.search(words[-1]):
            return False
        return self.but is None or self.but.search(words[-1]) is None


def _key(entity: str, pattern: str, accepts: Callable[[str], bool]) -> _Key:
    return _Key(entity, re.compile(rf"{_BEGIN}(?:{pattern})$"), accepts)


KEYS = (
    _key("PASSWORD", r"pass|password|passwd|pwd|passphrase|passcode|passwort|kennwort|mot_?de_?passe|mdp|contrase(?:ñ|n)a|senha|palavra_?passe|wachtwoord|hasło|haslo|lösenord|adgangskode|passord|salasana|пароль|密码|密碼|口令|パスワード|비밀번호|şifre|secret|secret_?(?:string|value|text)|client_?secret|secret_?key|pin_?code|otp|cvv|cvc|security_?code|pin|(?:security|secret|challenge|recovery)_?(?:question_?)?answer|sicherheits_?antwort|(?:door|gate|alarm)_?code", _secret),
    _key("API_KEY", r"api_?key|access_?key|auth_?token|access_?token|refresh_?token|id_?token|bearer|private_?key|secret_?access_?key|session_?token|authorization|credential", _secret),
    _key("API_KEY", r"token|key|cookie|session|session_?id|auth|(?:device|auth|authorization|oob)_?code|code_?verifier|sig|hmac|x_(?:amz|goog)_signature", _random_token),
    _key("DATE_OF_BIRTH", r"dob|geb|geburt|né|née|nato|nata|birth|birthday|bday|date_?of_?birth|birth_?(?:date|dt|year)|year_?of_?birth|yob|geburts_?jahr|ann[ée]e_?(?:de_?)?naissance|a[ñn]o_?(?:de_?)?nacimiento|anno_?(?:di_?)?nascita|ano_?(?:de_?)?nascimento|geboorte_?jaar|rok_?urodzenia|born(?:_?on)?|geburts_?(?:datum|tag)|geb_?datum|geboren(?:_?am)?|(?:date_?(?:de_?)?)?naissance|né_?le|(?:fecha_?(?:de_?)?)?nacimiento|nacido|(?:data_?(?:di_?)?)?nascita|(?:data_?(?:de_?)?)?nascimento|nasc|geboorte_?datum|(?:data_?)?urodzenia|doğum_?tarihi|dogum_?tarihi|födelse_?(?:datum|dag)|född|fødsels_?(?:dato|dag)|født|foedt|syntymä_?aika|syntynyt|syntymaaika|(?:datum_?)?narozen[íiaáý]?|data_?(?:ur|nar|nasc|naşterii|nașterii|nasterii)|născut|nascut|születési_?(?:idő|dátuma?)|szul_?ido|szuletesi_?(?:ido|datum)|fecha_?nac|data_?di_?nasc|naiss|дата_?рождения|др|д_?р|生年月日|出生日期|생년월일|जन्म(?:_?तिथि|_?दिनांक)?|janm_?(?:din|tithi|tarikh)|dob_?tarikh|imerominia_?gennis[ei]s|genniseis|ημερομηνία_?γέννησης|ngày_?sinh|ngay_?sinh|تاريخ_?الميلاد|תאריך_?לידה|tanggal_?lahir", _birth),
    _key("MEDICAL_RECORD", r"mrn|medical_?record(?:_?(?:number|no|id))?|patient_?(?:id|number|no|ref|reference)|health_?(?:id|number)|chart_?(?:no|number)?|hospital_?(?:no|number)|cartella(?:_?clinica)?|n(?:um)?_?cartella|dossier_?(?:patient|m[ée]dical)|n[°o]?_?dossier|historia_?cl[íi]nica|nhc|fall_?(?:nr|nummer)|patienten_?(?:nr|nummer)|journal_?(?:nr|nummer)|(?:nr_?)?kartoteki|fi[șs]a|foaie_?(?:de_?)?observa[țt]ie|prontu[áa]rio|processo_?cl[íi]nico|karton_?no|protokol_?no|potilas_?(?:numero|nro)|chorobopis|rodn[ée]_?karty|등록_?번호|병록_?번호|환자_?번호|診察券番号|カルテ番号|患者番号|病历号|住院号|门诊号|номер_?карты|мед_?карта|file_?(?:no|number)|raqm_?(?:el_?)?malaf|رقم_?الملف", _numbered),
    _key("MEDICAL_RECORD", r"(?:chart|encounter|accession|specimen|subject|participant)_?(?:number|no|id|code)", _numbered),
    _key("HEALTH_PLAN", r"(?:health_?plan|insurance|member|subscriber|beneficiary|medicare|medicaid)_?(?:number|no|id)|(?:policy|claim)_?(?:number|no|nr|id)?|insurer_?id|polizza|polica|p[óo]liza|ap[óo]lice|police_?(?:nr|no)|polis(?:_?(?:nr|nummer|no))?|kvnr|krankenversicherten_?(?:nr|nummer)|versicherten_?(?:nr|nummer)|försäkrings_?(?:nr|nummer)|forsikrings_?(?:nr|nummer)|証券番号|保険証番号|보험_?증?_?번호|保单号", _insured),
    _key("MEDICAL_LICENSE", r"(?:npi|dea)(?:_?(?:number|no))?", _numbered),
    _key("US_PASSPORT", r"passport(?:_?(?:number|no|id|nr|num))?", _identifier),
    _key("US_PASSPORT", r"pass_?(?:nr|nummer|no)|reise_?pass|passeport|passaport[eo]|pasaporte|paspoort(?:_?(?:nr|nummer))?|paszport(?:_?nr)?|nr_?paszportu|pasu?|pas_?(?:nr|nummer|no)|pasaport(?:_?no)?|pașaport|pasaport|passi_?(?:numero|nro)|útlevél(?:szám)?|utlevel(?:szam)?|cestovní_?pas|diavatirio|arithmos_?diavatiriou|διαβατήριο|паспорт|загранпаспорт|护照(?:号码?)?|護照|パスポート(?:番号)?|旅券番号|여권(?:_?번호)?|पासपोर्ट|جواز(?:_?السفر)?|דרכון", _document),
    _key("US_DRIVER_LICENSE", r"(?:driver'?s?_?)?licen[cs]e_?(?:number|no|id)|driving_?licen[cs]e|driving_?permit", _identifier),
    _key("LICENSE_NUMBER", r"licen[cs]e(?:_?(?:number|no|id))?|certificate_?(?:number|no)|führerschein(?:_?(?:nr|nummer))?|fuehrerschein|(?:n(?:um[ée]ro)?_?(?:de_?)?)?permis(?:_?de_?conduire)?|carnet(?:_?de_?conducir)?|patente(?:_?di_?guida)?|carta_?(?:de_?)?condução|cnh|rijbewijs(?:_?(?:nr|nummer))?|prawo_?jazdy|körkorts?(?:_?(?:nr|nummer))?|korkort|førerkort(?:_?nr)?|kørekort(?:_?nr)?|ajokortti(?:_?nro)?|řidičsk[ýé]_?(?:průkaz|oprávnění)|vezetői_?engedély|jogosítvány|ehliyet(?:_?no)?|permis_?auto|diploma_?odigis[ei]s|ву|водительское(?:_?удостоверение)?|运转免许|驾驶证(?:号)?|免許証番号|운전면허(?:_?번호)?", _numbered),
    _key("VEHICLE_ID", r"(?:number_?|licen[cs]e_?)?plate(?:_?(?:number|no))?|vehicle_?reg(?:istration)?(?:_?(?:number|no))?|vin", _plate),
    _key("VEHICLE_ID", r"(?:vehicle_?|car_?)?reg(?:_?(?:nr|no|number))?|kennz(?:eichen)?|kfz_?kennzeichen|kz|nummernschild|(?:plaque_?)?immat(?:riculation)?|plaque|matr[íi]cula|targa|kenteken|nr_?rej(?:estracyjny)?|tablica|spz|rz|poznávací_?značka|rendszám|rendszam|plaka|nr_?(?:de_?)?(?:înmatriculare|inmatriculare)|registrerings_?(?:nr|nummer)|regnr|bil_?nr|rekisteri_?(?:numero|tunnus)|pinakida|госномер|гос_?номер|номер_?авто|车牌(?:号码?)?|車牌|ナンバー(?:プレート)?|차량_?번호|차번호|chassis(?:_?(?:no|number|nr))?|fahrgestell_?(?:nr|nummer)|bastidor|telaio|serie_?(?:ș|s)asiu", _plate_in_capitals),
    _key("DEVICE_ID", r"serial_?(?:number|no)|device_serial_?(?:number|no)|(?:device|pump|pacemaker|implant|monitor|sensor|meter)_?serial|device_?(?:serial|id|identifier)|udi|imei|imsi|meid|udid", _numbered),
    _key("NATIONAL_ID", identity_keys(), _identity),
    _key("US_SSN", r"(?:ssn|social_?security(?:_?(?:number|no))?)(?:_?last_?(?:4|four))?|last_?(?:4|four)_?(?:of_?)?ssn|tax_?id|national_?id|nino|sin", _identifier),
    _key("BANK_ACCOUNT", r"(?:bank_?)?(?:account|iban)_?(?:number|no|num|digits)|acct(?:_?(?:number|no))?|routing_?(?:number|no)|sort_?code|bban|konto_?(?:nr|nummer|numer)|kto|blz|(?:nr_?)?rachunk[ue]k?|rachunek|rekening(?:_?(?:nr|nummer))?|tili(?:_?(?:nro|numero))?|tilinumero|(?:bank)?számlaszám|szamlaszam|(?:číslo_?)?účtu?|(?:cislo_?)?uctu|hesap(?:_?(?:no|numarası))?|număr_?cont|cont_?bancar|n(?:úmero)?_?(?:de_?)?cuenta|cuenta_?bancaria|n(?:umero)?_?(?:di_?)?conto|conta_?bancária|kredi_?kartı|卡号|银行卡(?:号)?|账号|帳號|ka_?hao|口座番号|계좌(?:_?번호)?|счет|счёт|р_?с|номер_?(?:счета|счёта)|खाता_?(?:संख्या|नंबर)|khata_?(?:number|no)", _account),
    _key("BANK_ACCOUNT", r"account|acct|konto|kontonummer|iban|compte|cuenta", _plain_account),
    _key("PHONE_NUMBER", r"contact(?:_?(?:number|no))?|whats_?app(?:_?(?:number|no))?|caller(?:_?(?:id|number))?|msisdn|callback(?:_?number)?|phone(?:_?(?:number|no))?|mobile(?:_?(?:number|no))?|cell(?:_?phone)?|tel(?:_?(?:no|nr|mob|fix))?|telefon(?:_?(?:nr|nummer|no|szám|numarası))?|tel[ée]fono|téléphone|telefone|telemóvel|celular|cellulare|m[óo]vil|portable|handy(?:_?(?:nr|nummer))?|rufnummer|gsm|tlf|puh(?:elin)?(?:_?(?:nro|numero))?|mobiel|mobil(?:_?(?:nr|nummer))?|cep|telefonszám|телефон|тел|моб(?:ильный)?|电话|手机(?:号)?|電話(?:番号)?|携帯|전화(?:_?번호)?|연락처|मोबाइल|फ़ोन|फोन|ph|phone_?numbers?|til[ée]fono|τηλέφωνο|κινητό|הטלפון|טלפון|هاتف|جوال|numer_?telefonu", _phone),
    _key("PHONE_NUMBER", r"number|to|from|recipient|sender|destination", _valid_phone),
    _key("CREDIT_CARD", r"card_?(?:number|no|num|digits)|cc_?(?:number|num|no)|pan|credit_?card", _account),
    _key("MAC_ADDRESS", r"(?:mac|ethernet|bluetooth|wifi|hardware)(?:_?addr(?:ess)?)?", _hardware),
    _key("USERNAME", r"user|user_?name|login|screen_?name|handle|user_?id|account_?name|uid|logname|benutzer(?:name)?|utilisateur|usuario|utente|gebruiker(?:snaam)?", _user),
    _key("USERNAME", r"assignee|reporter|owner|author|reviewer|approver|requester|initiator|principal|(?:created|updated|modified|opened|closed|merged|deployed|performed|changed|submitted|uploaded|edited|triggered)_?by", _account_of_somebody),
    _key("USERNAME", r"actor", mentioned),
    _key("USERNAME", r"(?:employee|staff|personnel|payroll|worker|student|mitarbeiter|personal|matrikel|empleado|employé|salarié|dipendente|funcionário|medewerker|personeels|pracownik)_?(?:number|num|no|nr|nummer|id|code)", _numbered),
    _key("IP_ADDRESS", r"ip|ip_?v4|ip_?addr(?:ess)?|remote_?addr(?:ess)?", _address_number),
    _key("RESIDENCE", _PLACE_KEYS, _coordinates),
    _key("AGE", r"age|age_?years?|age_?in_?years|âge|alter|edad|età|idade|leeftijd|wiek|ålder|alder|ikä|életkor|věk|vârsta|varsta|yaş|yas|возраст|年龄|年齢|나이|उम्र|umar|ηλικία|ilikia", _age),
    _key("POSTCODE", r"zip|zip_?code|post_?code|postal_?code|plz", _identifier),
    _key("STREET_ADDRESS", r"stra(?:ß|ss)e|str|anschrift|adresse|rue|direcci[oó]n|calle|domicilio|indirizzo|via|endere[cç]o|morada|rua|adres|adresi|ulica|ulice|straat(?:naam)?|adress|osoite|katu|katuosoite|cím|lakcím|lakcim|(?:liefer|rechnungs|wohn|privat|post)_?(?:adresse|anschrift)|bydliště|adresa|str(?:ada)?|dieu?thins[iy]|διεύθυνση|адрес|地址|住址|住所|주소|पता|pata|العنوان|address|street|street_?address|address_?line_?\d?|addr|home_?address|billing_?address|shipping_?address", _address),
    _key("LOCATION", r"city|town|county|village|suburb|municipality|home_?town|birth_?place|place_?of_?birth", _place),
    _key("LOCATION", r"precinct(?:_?(?:number|no))?", lambda value: 0 < len(value) <= 20),
    _Key("BIOMETRIC", BIOMETRIC_KEY, _recorded, inherited=True),
    _Key("IDENTIFIER", IDENTIFIER_KEY, _code, but=NO_IDENTIFIER_KEY),
)  # fmt: skip


def _any_of(keys: Iterable[_Key]) -> re.Pattern[str]:
    """Return what is found in the words of every key path of which one of these speaks."""
    patterns = "|".join(key.pattern.pattern.removeprefix(_BEGIN) for key in keys)
    return re.compile(f"{_BEGIN}(?:{patterns})")


_ANY = _any_of(KEYS)
"""Each line of a text may be a label, and each would be asked some forty patterns. With this one asked first the
dearest text takes 7 ms per kB, without it 13; the bar is 10."""


@lru_cache(maxsize=1024)
def tells_biometric(keys: tuple[str, ...]) -> bool:
    """Whether everything under these keys is a biometric record, numbers too."""
    return any(BIOMETRIC_KEY.search(word) for word in key_words(keys))


@lru_cache(maxsize=1024)
def _tell_a_place(keys: tuple[str, ...]) -> bool:
    return any(_PLACE_KEY.search(word) for word in key_words(keys)[-1:])


def tells_coordinates(keys: tuple[str, ...], value: str) -> bool:
    """Whether a number is where somebody stands, by its keys and how exact it is."""
    return "." in value and _coordinates(value) and _tell_a_place(keys)


def tells_anything(keys: tuple[str, ...]) -> bool:
    """Whether a key path says of its value what it is."""
    words = key_words(keys)
    return any(map(_ANY.search, words)) and any(key.speaks(words) for key in KEYS)


def entities_told(keys: tuple[str, ...]) -> frozenset[str]:
    """Return what the value at a key path may be by its keys."""
    words = key_words(keys)
    if not any(map(_ANY.search, words)):
        return frozenset()
    return frozenset(key.entity for key in KEYS if key.speaks(words))


_NUMBER_OF = frozenset(
    ["n", "no", "nr", "num", "number", "numero", "número", "nummer", "id", "code", "value", "ar"]
)
"""Keys that say that something has a number; what has one, the key above tells."""


_LIKE_A_MARK = re.compile(r"<([A-Za-z][A-Za-z_]{1,40})[_:~]([0-9A-Za-z][0-9A-Za-z.+\-]{3,60})>")


class KeyPaths:
    """Judges whole values by their key path, mostly by its last word."""

    name = "key_paths"
    version = "keys-10"
    entities = frozenset(key.entity for key in KEYS) - {"LOCATION"}
    """Places are found here too; who asks for them needs a names model all the same."""

    def __init__(self, wanted: frozenset[str] | None = None) -> None:
        """Look for these entity types, for all of them by default."""
        self._keys = tuple(key for key in KEYS if wanted is None or key.entity in wanted)
        self._any = _any_of(self._keys)

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),  # noqa: ARG002 - looks at everything
    ) -> list[list[Finding]]:
        """Return all of a unit's text, or what stands in it behind a word in the form of a mark."""
        said: dict[tuple[str, ...], list[tuple[str, Callable[[str], bool]]]] = {}
        for unit in units:
            if unit.keys not in said:
                said[unit.keys] = self._said(unit.keys)
        return [
            (self._found(unit.view.original, said[unit.keys]) if said[unit.keys] else [])
            or self._labelled(unit.view.original)
            for unit in units
        ]

    def _found(self, text: str, said: list[tuple[str, Callable[[str], bool]]]) -> list[Finding]:
        if len(text) > 4000:
            return []
        value = text.strip()
        start = text.find(value)
        for entity, accepts in said:
            if accepts(value):
                return [Finding(entity, start, start + len(value), 0.9, self.name)]
        return []

    def _labelled(self, text: str) -> list[Finding]:
        """Return what stands in ``<LABEL_value>``: no mark of ours, for those are passed over."""
        found: list[Finding] = []
        for match in _LIKE_A_MARK.finditer(text) if "<" in text else ():
            value = match[2]
            if any(map(str.isdigit, value)):
                said = self._said((match[1].lower(),))
                entity = next((entity for entity, accepts in said if accepts(value)), None)
                if entity is not None:
                    found.append(Finding(entity, *match.span(2), 0.9, self.name))
        return found

    def _said(self, keys: tuple[str, ...]) -> list[tuple[str, Callable[[str], bool]]]:
        """Return what the value at a key path may be by its keys, each with what must hold of it."""
        words = key_words(keys)
        if not any(map(self._any.search, words)):
            return []
        either = [words]
        if len(words) > 1 and words[-1] in _NUMBER_OF:
            either.append(words[:-1])
        return [
            (key.entity, key.accepts)
            for key in self._keys
            if any(key.speaks(one) for one in either)
        ]
