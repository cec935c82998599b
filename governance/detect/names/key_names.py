"""What the keys above a value say of names: of people, of things, of either."""

import re
from functools import lru_cache

_PERSON_KEY = re.compile(
    r"(?:^|_)(?:full_?name|first_?name|last_?name|sur_?name|given_?name|family_?name|middle_?name|maiden_?name|nick_?name|display_?name|"
    r"customer_?name|client_?name|contact_?name|contact_?person|person|cardholder|card_?holder|account_?holder|employee|patient|recipient|sender|"
    r"passenger|assignee|reviewer|author|owner_?name|signer|attendee|guest|user_?name|customer|contact|buyer|seller|manager|signed_?by|created_?by|"
    r"vorname|nachname|familienname|prénom|prenom|nom_de_famille|nom_complet|apellidos?|cognome|sobrenome|apelido|voornaam|achternaam|imię|imie|nazwisko|soyad|"
    r"nombre_completo|nome_completo|фамилия|имя|фио|姓名|氏名|이름|성명|requested_?by|approved_?by|reported_?by|applicant|beneficiary|caller|requester|who|to_?name|from_?name)s?(?:_?name)?$"
)
_MAYBE_PERSON_KEY = re.compile(
    r"(?:^|_)(?:name|names|nom|nome|nombre|naam|ad|cn|cc|owner|reports|members?|team|attendees|participants|assigned_?to|approvers?|reporter|reported_by|"
    r"vorname|nachname|familienname|kund(?:e|in)|ansprechpartner(?:in)?|mitarbeiter(?:in)?|melder|bearbeiter|absender|empfänger|patient(?:in)?|"
    r"prénom|prenom|nom_(?:de_famille|complet)|client|employée?|responsable|destinataire|demandeur|nombre_completo|apellidos?|cliente|clienta|empleado|"
    r"solicitante|cognome|nome_completo|sobrenome|apelido|voornaam|achternaam|klant|medewerker|imię|imie|nazwisko|klient|soyad|ad_soyad|müşteri|"
    r"имя|фамилия|фио|клиент|姓名|名字|联系人|客户|氏名|名前|担当者?|이름|성명|고객|담당자|नाम|ग्राहक|الاسم|اسم|العميل|שם|לקוח|first|last|lead|chair|speaker|head)$"
)
"""Keys whose values are names of people as often as of other things."""
_PERSONAL_WORDS = """
    customer client contact person user patient employee recipient sender passenger author owner
    member student teacher guest attendee profile buyer seller applicant candidate holder
    cardholder signer manager caller requester subscriber beneficiary individual people participant
    """
_PERSONAL = frozenset(_PERSONAL_WORDS.split())
_BARE_NAMES_WORDS = """
    name names nom nombre nome naam nazwa nazwisko namn navn nimi jméno jmeno nume név nev isim onoma नाम name1 имя owner reporter speaker reviewer
    reviewers approver approvers attendees participants assigned_to lead cliente client klant kunde klient
    responsable titular maintainer maintainers author authors creator editor mentor organizer organiser
    instructor interviewer host moderator cc cn
    """
_BARE_NAMES = frozenset(_BARE_NAMES_WORDS.split())
"""Keys of somebody's name where nothing above them names a thing."""
_AROUND_ANYTHING_WORDS = """
    parts text content arguments value input result results data item items record records row rows entry
    entries ticket issue pull_request pr payload body response request message event document file contact
    contacts people team members users accounts me hit hits page
    """
_AROUND_ANYTHING = frozenset(_AROUND_ANYTHING_WORDS.split())
_THING_KEYS_WORDS = """
    halte haltestelle stop station bahnhof locatie ort stadt plats lieu lugar luogo local place places venue fluss river rivers río rios rio fleuve nehir rivier joki jezioro
    märke maerke mærke merkki značka znacka мара марка бренд брокер движок рояль студия сорт культура фотоаппарат модель 品牌 场馆 公司 会場 브랜드 stift mode uhr moda penna vino producent výrobce gyártó producator üretici
    publisher verlag éditeur editorial editore editora label album series channel playlist song movie book game brand make manufacturer hersteller fabricant fabricante produttore marke marque marca merk marka vendor
    supplier lieferant fournisseur proveedor fornitore fornecedor leverancier company companies firm firma
    empresa azienda entreprise bedrijf unternehmen organization organisation org employer product products
    produkt produit producto prodotto produto artikel article item_name model models color colour farbe
    couleur cor colore kleur kolor country land pays pais país paese kraj currency language sprache langue
    lingua taal department abteilung tool tools package packages library framework service services plan tier
    status state priority severity type kind category kategorie categorie categoria genre theme font typeface
    engine platform os browser database db table column field schema index topic queue bucket cluster node pod
    container image branch tag repo repository project projekt projet proyecto progetto app application module
    component environment env region zone method event metric sensor role group file filename folder path
    title titel titre titulo titolo subject betreff objet material size unit currency_name payment_method
    carrier spedition versand lieferart
    """
_THING_KEYS = frozenset(_THING_KEYS_WORDS.split())
"""Keys whose value is the name of a thing, whatever the word."""
_PARTS_OF_NAMES_WORDS = """
    vorname rufname nachname familienname geburtsname prénom prenom apellido apellidos cognome sobrenome
    apelido imię imie nazwisko voornaam achternaam soyad soyadı förnamn efternamn fornavn etternavn efternavn etunimi
    sukunimi příjmení prijmeni prenume nume_de_familie vezetéknév keresztnév isim_soyisim surname forename firstname lastname fullname
    realname givenname familyname sn gecos фамилия отчество фио fio 姓名 户名 戶名 huming 氏名 이름 성명 예금주 客户姓名 社員名 顧客名 성함
    """
_PARTS_OF_NAMES = frozenset(_PARTS_OF_NAMES_WORDS.split())
_NAMES_OF = frozenset(
    [
        "name",
        "names",
        "nom",
        "nombre",
        "nome",
        "naam",
        "nazwa",
        "имя",
        "名",
        "formatted",
        "namn",
        "navn",
        "nimi",
        "jméno",
        "jmeno",
        "nume",
        "név",
        "nev",
        "isim",
        "onoma",
        "naam",
        "नाम",
    ]
)
_PEOPLE_WORDS = """
    mitarbeiter mitarbeiterin mitarbeitername kunde kundin kunden kundenname ansprechpartner ansprechpartnerin
    bearbeiter bearbeiterin melder absender empfänger empfängerin schüler schülerin teilnehmer teilnehmerin
    patient patientin inhaber inhaberin vertreter vertreterin versicherter mieter nutzer antragsteller
    auftraggeber kollege kollegin angestellter ansprechperson kontakt kontaktperson bewerber bewerberin
    salarié salariée employé employée employés salariés client cliente clients élève bénéficiaire titulaire
    responsable destinataire demandeur patiente assuré empleado empleada empleados clienta alumno alumna
    paciente titular solicitante contacto beneficiario trabajador dipendente dipendenti intestatario
    richiedente paziente contatto alunno funcionário funcionária funcionários aluno contato beneficiário
    medewerker medewerkers klant leerling contactpersoon aanvrager pracownik pracownicy klient uczeń pacjent
    zgłaszający сотрудник клиент пациент заявитель исполнитель контакт çalışan müşteri öğrenci hasta 员工 客户 联系人
    社員 顧客 担当者 직원 고객 담당자 契約者 被保険者 受取人 差出人 名義人 担当 환자 피해자 신고인 보호자 수취인 참석자 收件人 收货人 寄件人 户主 患者 申请人
    आवेदक खाताधारक ग्राहक रोगी मरीज malik grahak aavedak grahak khatadhari pelátis pelatis asthenis odigos idioktitis katoxos sapak mareed
    asiakas saaja omistaja potilas hakija tilaaja läsnä lähettäjä vastaanottaja yhteyshenkilö huoltaja kuski
    ägare kund anställd deltagare försäkringstagare målsägande vittne vårdnadshavare mottagare avsändare sökande hyresgäst närvarande betalare förare
    ejer kunde medarbejder gæst modtager afsender ansøger lejer pårørende forælder eier mottaker avsender søker leietaker ansatt pasient sjåfør betaler
    držitel zákazník zaměstnanec pacient pacientka příjemce odesílatel žadatel majitel plátce řidič cestující účastník zákonný zástupce
    titularul angajat beneficiar pacientul client expeditor destinatar solicitant chiriaș proprietar asigurat asigurată șofer
    tulajdonos ügyfél beteg címzett feladó kérelmező résztvevő munkavállaló szülő bérlő sofőr ugyfel tulaj
    alıcı gönderen sahibi hasta yolcu katılımcı katılımcılar çalışan teslim_alan veli kiracı sürücü arayan
    odbiorca nadawca opiekun właściciel uczestnik obecni najemca kierowca płatnik wnioskodawca dzwoniący
    владелец держатель плательщик получатель отправитель свидетель пострадавший потерпевший покупатель собственник водитель врач
    halter halterin fahrer fahrerin reisende reisender empfängername passagier kontoinhaber kontoinhaberin karteninhaber versicherungsnehmer versicherungsnehmerin mutter vater oma opa sohn tochter ehemann ehefrau notfallkontakt vormund hausarzt klingel
    porteur assurée locataire conducteur passager voyageur expéditeur bénéficiaires mère père enfant époux épouse conjoint
    anfitrión anfitriona pasajero asegurado asegurada inquilino inquilina conductor remitente denunciante huésped propietario propietaria familiar tutor
    assicurato assicurata passeggero mittente conducente inquilino proprietario proprietaria ospite genitore madre padre
    segurado segurada beneficiário beneficiária passageiro inquilino proprietário proprietária remetente motorista hóspede portador portadora responsável
    verdachte ontvanger afzender huurder bestuurder reiziger passagier gast eigenaar verzekerde ouder oppas loodgieter houder partner echtgenoot echtgenote dochter zoon
    keeper traveller traveler householder proprietor policyholder claimant pupil mother father son daughter wife husband grandmother grandfather
    gran grandma grandpa nanny pax addressee consignee carer inhaber inhaberin driver spouse child children interviewer candidate backup attendee interviewee
    contributor contributors maintainer maintainers author authors speaker instructor tenant landlord nurse
    doctor physician supervisor mentor parent guardian witness payee payer insured beneficiary referee
    """
_PEOPLE = frozenset(_PEOPLE_WORDS.split())
_LINKS_WORDS = """
    de du des del della do da van der die das y et e i und en l d o w von par por
    """
_LINKS = frozenset(_LINKS_WORDS.split())
_OF_SOMEBODY_WORDS = """
    name names nom nombre nome naam nazwa имя 姓名 given family first last formatted
    """
_OF_SOMEBODY = frozenset(_OF_SOMEBODY_WORDS.split())
"""Keys of a name where the key above says that it is somebody's."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=1024)
def key_words(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last keys of a key path as lower-case snake words, outermost first."""
    return tuple(
        _CAMEL.sub("_", key).lower().replace("-", "_").replace(" ", "_")
        for key in path[-3:]
        if not key.isdigit()
    )


@lru_cache(maxsize=4096)
def names_a_person(path: tuple[str, ...]) -> bool:
    """Whether the value at a key path is somebody's name."""
    keys = key_words(path)
    if not keys:
        return False
    words = keys[-1].strip("_0123456789").split("_")
    if len(keys) > 1 and keys[-1] in _OF_SOMEBODY:
        above = keys[-2].split("_")
        if any(word.rstrip("s") in _PERSONAL or word in _PEOPLE for word in above):
            return True
        if keys[-1] != "name":
            return keys[-2] == "name"
    if any(word in _PARTS_OF_NAMES for word in words):
        return True
    if any(word in _NAMES_OF for word in words) and len(words) > 1:
        rest = [word for word in words if word not in _NAMES_OF and word not in _LINKS]
        if all(word in _PEOPLE or word.rstrip("s") in _PERSONAL for word in rest):
            return bool(rest)
    return _PERSON_KEY.search(keys[-1]) is not None


@lru_cache(maxsize=4096)
def names_a_thing(path: tuple[str, ...]) -> bool:
    """Whether the value at a key path is the name of a thing: a brand, a model, a colour."""
    keys = key_words(path)
    return bool(keys) and (
        keys[-1] in _THING_KEYS
        or (len(keys) > 1 and keys[-1] in _NAMES_OF and keys[-2].rstrip("s") in _THING_KEYS)
    )


@lru_cache(maxsize=4096)
def may_be_anybody(path: tuple[str, ...]) -> bool:
    """Whether one unlisted word at a key path is more likely somebody's name than that of a thing."""
    keys = key_words(path)
    if not keys or keys[-1] not in _BARE_NAMES:
        return False
    return keys[-1] != "name" or all(key in _AROUND_ANYTHING for key in keys[:-1])


@lru_cache(maxsize=4096)
def is_of_people(path: tuple[str, ...]) -> bool:
    """Whether a key names people by what they are to somebody: a patient, a tenant, a mother."""
    keys = key_words(path)
    return bool(keys) and keys[-1].strip("_0123456789").rpartition("_")[2] in _PEOPLE


@lru_cache(maxsize=4096)
def may_name_a_person(path: tuple[str, ...]) -> bool:
    """Whether the value at a key path is somebody's name or that of a thing."""
    keys = key_words(path)
    if not keys:
        return False
    words = keys[-1].strip("_0123456789").split("_")
    return (
        words[0] in _PEOPLE
        or words[-1] in _PEOPLE
        or _MAYBE_PERSON_KEY.search(keys[-1]) is not None
    )
