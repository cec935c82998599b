"""Values behind the labels of forms, letters and cards of many languages, and what stands behind the like."""

import pytest

from tests.governance.redaction_support import text
from tests.governance.redaction_support import value as redacted
from trajectory.canonical import JsonValue

BIRTH = "1957-03-29", "29/03/1957", "29.03.1957"
BORN = (
    "Né(e) le : {}", "né(e) le {}", "DDN : {}", "Date de naiss. : {}", "Nato/a il: {}", "Nascida a: {}", "GebDat: {}", "Geb. datum: {}",
    "Född den: {}", "Födelsedag: {}", "Født den {}", "Fødselsdag: {}", "Syntymäaika: {}", "Synt. {}", "Syntynyt {}",
    "Születési idő: {}", "Született: {}", "Szül.: {}", "Data nașterii: {}", "Născut la: {}", "fecha_nacimiento: {}", "BirthDt={}",
    "Д.р. {}", "Дата народження: {}", "Ημερομηνία γέννησης: {}",
)  # fmt: skip
LABELLED = (
    ("Nº historia clínica: {}", "5512098"), ("Fallnummer: {}", "2029113"), ("Patienten-Nr.: {}", "88-20913"),
    ("N° patient : {}", "5512098"), ("IPP : {}", "800551209"), ("Nr pacjenta: {}", "5512098"), ("Patiëntnummer: {}", "5512098"),
    ("Prontuário: {}", "5512098"), ("Kontonummer: {}", "4471029938"), ("Konto-Nr. {}", "4471029938"),
    ("Rekeningnummer: {}", "44.71.02.993"), ("Número de cuenta: {}", "4471029938"), ("Nr rachunku: {}", "4471029938"),
    ("A/C no: {}", "4471029938"), ("Kennzeichen: {}", "KS-QX 4471"), ("Targa: {}", "GF 482 KL"), ("Matrícula: {}", "4471 BCD"),
    ("Kenteken: {}", "XX-123-B"), ("Immatriculation : {}", "FG-482-KL"), ("Vehicle reg: {}", "AB12 CDE"),
    ("Personalausweis Nr. {}", "L01X00T47"), ("PERSONALAUSWEIS\n{}", "L01X00T47"), ("Driver's license no. {}", "C59211837"),
    ("N° de permis : {}", "13AA00002"), ("Recovery code: {}", "7FQ2-99XK-21AB"), ("Your verification code is {}", "482913"),
    ("OTP: {}", "482913"), ("Zugangscode: {}", "Kx77Qm2"), ("Código de verificación: {}", "482913"), ("Straße: {}", "Ottergrund 14"),
    ("Calle: {}", "Alfarería 31"), ("Katuosoite: {}", "Koivurinne 6"), ("address_line_1: {}", "Ottergrund 14"),
    ("presso lo studio in {}, Modena", "via Garibaldi 88"), ("jeg bor på {}, Bergen", "Solbakken 12"),
    ("mi fijo: {}", "93 418 22 07"), ("unter {} erreichbar", "089/4471 22-0"), ("il mio numero è {}", "333 4471902"),
    ("meu zap é {}", "11 98447-1902"), ("voicemail from {}", "9175550148"), ("Kundennummer bei der AOK: {}", "M447190221"),
    ("Birthday: {}", "12 Sept"), ("mein Geburtstag ist am {}", "3. Mai"), ("cumpleaños: {}", "4 de julio"), ("DOB {}", "01JAN95"), ("born: {}", "19-APR-1968"),
    ("emp no. {}", "40417"), ("Employee number: {}", "E-40417"), ("Personalnummer: {}", "00417733"), ("Mitarbeiter-Nr. {}", "417733"), ("matricule {}", "417733"),
    ("N° d'agent : {}", "417733"), ("número de empleado: {}", "41773"), ("matricola n. {}", "41773"), ("personeelsnummer {}", "417733"), ("nr pracownika: {}", "41773"),
    ("LICENCE  {}", "QUIBB804198MJ9AB"), ("5. PERMIT NO {}", "X77-4419-02"), ("DL: {}", "D1234567"), ("ADDRESS  {}  LEITH", "3 STRATHBOGIE GDNS"),
    ("ANSCHRIFT: {}", "AM KIRCHBERG 14"), ("DOMICILIO\n{}", "CALLE TORRENT 17"),
    ("Fahrgestellnummer {}", "WVWZZZ1JZXW000001"), ("numéro de châssis : {}", "VF1RFB00066123456"), ("telaio: {}", "ZFA31200003123456"), ("bastidor {}", "VSSZZZ5FZJR000123"),
    ("Eircode is {}", "D02 X285"), ("eircode: {}", "T12XY45"), ("lives at {}, Athina", "Leof. Kifisias 124"), ("ich wohne in der {}", "Lindenhöhe 44"),
    ("bydlím {}, Praha 3", "Vinohradská 112"), ("he wohnt am {}", "Kirchberg 3"), ("VAT {}", "EL094259216"), ("BTW-nr: {}", "NL123456782B01"), ("NIF-IVA ES {}", "12345678Z"), ("IVA ES{}", "17123456N"),
    ("konto {}", "5000-4471902"), ("card ending 4471, cvv {}", "392"), ("CI {}", "4.471.902-1"),
)  # fmt: skip


@pytest.mark.parametrize("label", BORN)
def test_a_birth_goes_behind_its_label(label: str) -> None:
    for date in BIRTH:
        assert date not in text(f"Ref 88213\n{label.format(date)}\nOK")


@pytest.mark.parametrize(("label", "value"), LABELLED)
def test_a_number_or_an_address_goes_behind_its_label(label: str, value: str) -> None:
    assert value not in text(f"Ref 88213\n{label.format(value)}\nOK")


@pytest.mark.parametrize(
    ("card", "names"),
    [
        ("Name/Surname SCHLOTTERBECK\nVornamen/Given names GERLINT", ["SCHLOTTERBECK", "GERLINT"]),
        ("PASSPORT\nSurname/Nom\nPELLENCOURT\nGiven names/Prénoms\nMAUDELINE ROSE", ["PELLENCOURT", "MAUDELINE"]),
        ("COGNOME BRANZOLDI\nNOME LUDOVICA", ["BRANZOLDI", "LUDOVICA"]),
        ("APELLIDOS ARQUIMBAU SOTO\nNOMBRES YARELIS", ["ARQUIMBAU", "SOTO", "YARELIS"]),
        ("1. SURNAME PEMBERLEIGH", ["PEMBERLEIGH"]),
    ],
)  # fmt: skip
def test_names_go_from_a_card_that_was_read_by_a_machine(card: str, names: list[str]) -> None:
    read = text(card)
    assert [name for name in names if name in read] == []


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Versand fehlgeschlagen: Empfänger 'Quillon Wrasp' nicht gefunden", "Quillon Wrasp"),
        ('no such customer "Quillon Wrasp"', "Quillon Wrasp"),
        ("wir haben das mit Lieselotte besprochen", "Lieselotte"),
        ("Falei com a Jucileide sobre o boleto", "Jucileide"),
        ("Il faut voir ça avec Anselme Trouvé du service paie", "Anselme Trouvé"),
        ("ne ho parlato con Fiammetta ieri", "Fiammetta"),
        ("the appointment is under Quimby", "Quimby"),
        ("two children (Taras, Lesya)", "Taras"),
        ("two children (Taras, Lesya)", "Lesya"),
    ],
)
def test_a_name_goes_from_quotes_and_behind_whom_one_spoke_with(said: str, name: str) -> None:
    assert name not in text(said)


@pytest.mark.parametrize(
    "kept",
    [
        "Part number 8801-2234-91, torque 45 Nm", "Order number 8801-2234-91 shipped", "Serial number 8801 2234 91",
        "Error code: E4021 in module tan", "Street: none", "Name/Value", "NAME VALUE\nREDIS 7", "Nome/Valore: Totale",
        "Conta: 12", "Placa: RTX 4090", "line1: foo 3", "const line1 = 14;", "Targa 911 GTS", "Fall 2026 collection",
        "The access key is stored in Vault", "Database user 'app' not found", "key code: 27 (escape)",
        "security code review: 3 findings", "login key rotation is due", "We filed it under Miscellaneous.",
        "The order is under review", "Birthday parties for 12 guests", "the employee needs 3 monitors", "Staff number is required", "service no 1 in town", "personal 12345 plan", "LICENSE   APACHE-2.0",
        "LICENSE MIT\nCopyright 2024", "PERMIT  REQUIRED BEFORE 2026-01-01", "ADDRESS  0x7FFE0012", "ADDRESS FAMILY NOT SUPPORTED", "VAT ID DE811907980", "TVA FR40303265045", "VAT 20 %",
        "er wohnt in Etage 4", "wohnhaft in Deutschland", "Nutzer bleiben im Modus 4", "chassis 24 slots", "eircode lookup failed", "ID: 1772611200000", "ID 4711 not found", "build 01JAN95.iso",
        "Konto 4400: Erlöse", "cvv 3.9.2 released", "El precio fijo es 1200 euros",
 "children of the Process group are reaped", "On en a parlé avec Orange",
        "Wir haben das mit Jira besprochen", "The sisters are coming; Monday is fine",
    ],
)  # fmt: skip
def test_what_stands_behind_the_like_stays(kept: str) -> None:
    assert text(kept) == kept


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("会议搬到杭州市西湖区文三路478号3幢602室了", "文三路478号3幢602室"), ("東京都新宿区西早稲田2-11-4まで", "西早稲田2-11-4"), ("서울시 마포구 월드컵로 212-4 로", "월드컵로 212-4"),
        ("проживает: ул. Кирова, д. 44, кв. 19", "Кирова, д. 44"), ('steile sti "Odos Papadiamanti 44, Kalamata"', "Papadiamanti 44"),
        ("οδός Ερμού 44 στην Αθήνα", "Ερμού 44"), ("/envios/calle-embajadores-88-3b/acuse.eml", "calle-embajadores-88"), ("/proofs/44-hazelmere-close-leeds/bill.png", "44-hazelmere-close"),
        ("drives a [WA71 OFD] daily", "WA71 OFD"), ("voiture grise, AB-123-CD, garée", "AB-123-CD"), ("번호는 47다 1902 맞죠", "47다 1902"),
        ("?serviceKey=hT7qLw02mZx9RbVn4KcYp81sDf6A` ok", "hT7qLw02mZx9RbVn4KcYp81sDf6A"), ("HSL_SUBSCRIPTION=4cf1b7a09d2e4f8e9a6b3c5d7e8f9012", "4cf1b7a09d2e4f8e9a6b3c5d7e8f9012"),
        ("Nøgle til lønsystem: q7fK2mQ9xTzLw4RbN8cYv", "q7fK2mQ9xTzLw4RbN8cYv"), ("rzp_" + "live_8hTq2LmX9vKbNw", "8hTq2LmX9vKbNw"),
        ("toegangscode:\n  K7QX-99AB-2MLP", "K7QX-99AB-2MLP"), ("ACCESS CODE: QX7-4471-MNB", "QX7-4471-MNB"), ("and netflix [Popcorn!!2024]", "Popcorn!!2024"),
        ('form-data; name="sifre"\r\n\r\nKaplumba9a!\r\n--x', "Kaplumba9a!"), ("clave_wifi=tortuga_lenta44", "tortuga_lenta44"), ("Kennwort: Regenbogen Kutsche Elf\nok", "Kutsche Elf"),
        ("Security word: [marmalade]", "marmalade"), ("publickey for [gbattistoni] from", "gbattistoni"), ("# ok!! sudo usermod -aG staff solvejgk", "solvejgk"),
        ("收件人不在，18044719028", "18044719028"), ("Мама: Кожевникова Р.А. пришла", "Кожевникова"), ("пояснил «Фархутдинов Ильдар Маратович» вчера", "Ильдар"),
        ("владельца [Y. Matsuzaki] и", "Matsuzaki"), ("cliente nascida Quillonde, já existe", "Quillonde"), ("(дев. Рябинина)", "Рябинина"), ("> Merhaba \"Tayfun\", rapor", "Tayfun"),
        ("先日 佐々木様 から電話", "佐々木"), ("昨天和慕容雪说过", "慕容雪"), ("GET /r?last=Vandermolen&n=2", "Vandermolen"),
    ],
)  # fmt: skip
def test_what_fresh_texts_showed_goes(said: str, value: str) -> None:
    assert value not in text(said)


def test_a_number_goes_by_the_key_above() -> None:
    assert "MI4471902X" not in str(redacted({"patente": {"n": "MI4471902X"}}))
    assert "190283" not in str(redacted({"policy": {"no": "LIC/447/190283"}}))
    kept: JsonValue = {"page": {"n": "4471902"}, "model": {"id": "MI4471902X"}, "policy": {"id": "2012-10-17"}}  # fmt: skip
    assert redacted(kept) == kept


@pytest.mark.parametrize(
    "kept",
    [
        "人民路上有很多商店", "东京很大", "ул. Кирова перекрыта", "Odos is Greek for street", "/api/via-rail/3", "/docs/42-ways-to-test.html", "build AB12 CDE of the kernel",
        "?appid=com.example.shop.android", "subscription=weekly-newsletter-with-long-name", "Schlüssel: siehe-handbuch-seite-zwoelf", "access code: required", "access code: read-only",
        "netflix [see documentation]", 'form-data; name="file"\r\n\r\nreport2026', "Kennwort: Bitte Neu Setzen", "security word: required", "for [staff] from", "sudo usermod -aG docker app",
        "编号18044719028", "рис. А. Б.", "«Три медведя»", "[U. S. Army]", "see Fig. 2. Results", "nascida em Lisboa em maio", "known as Kubernetes", 'telefone: "(00) 00000-0000"',
        "- halte: Utrecht Vaartsche Rijn", "marke: Georg Jensen",
    ],
)  # fmt: skip
def test_what_looks_like_it_stays(kept: str) -> None:
    assert text(kept) == kept


def test_both_of_two_accounts_go_whatever_word_stands_between() -> None:
    first, second = "DE89370400440532013000", "AT611904300234573201"
    said = text(f"Lastschrift von {first} auf {second} ändern, {second} to {first}")
    assert first not in said
    assert second not in said


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("| cartella | 2026/004417 |", "2026/004417"), ("환자 등록번호 20447190 확인", "20447190"), ("証券番号 44-7190283", "44-7190283"), ('<fisa nr="44719/2026">', "44719/2026"),
        ("Närvarande: [kerstin bladhe], [olof tegnérsson]", "tegnérsson"), ("Oplæg ved [Anna de la Motte] kl. 10", "Motte"), ("Lieferwagen: WÜ-AP 447", "WÜ-AP 447"),
    ],
)  # fmt: skip
def test_a_value_goes_beside_its_label_in_lists_and_tables(said: str, value: str) -> None:
    assert value not in text(said)


@pytest.mark.parametrize(
    "kept",
    [
        "<namn>FÖRNAMN EFTERNAMN</namn>", "電話: 000-0000-0000", "| Kunde | Preis |", "| age | 12 years of data |", "第3章の結果", "全部5个",
        '["Pera Müzesi", "Dolmabahçe Sarayı"]', "Charlton Athletic v Leyton Orient",
    ],
)  # fmt: skip
def test_placeholders_and_places_stay(kept: str) -> None:
    assert text(kept) == kept
