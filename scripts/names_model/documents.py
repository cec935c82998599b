"""Documents of many languages that agents see, with and without people, for training the names model.

What has a name and is nobody is the larger half: clubs, brands, stations, works of music, eponyms, rooms, moons.
"""

import random
from collections.abc import Callable, Iterator

from scripts.names_model.templates import fill, invented, name

type Maker = tuple[Callable[[], str], str | None]

_CLUBS = """
Boca Juniors|River Plate|Racing Club|Rosario Central|Newell's Old Boys|Colo Colo|Peñarol|Atlético Nacional|Deportivo Cali|
Talleres|Barracas Central|Gimnasia|Estudiantes|Banfield|Lanús|Huracán|Platense|Sarmiento|Real Betis|Rayo Vallecano|
Celta de Vigo|Athletic Club|Real Sociedad|Getafe|Osasuna|Arminia Bielefeld|Hertha BSC|Union Berlin|Preußen Münster|
Eintracht Frankfurt|Fortuna Düsseldorf|Werder Bremen|Alemannia Aachen|Dynamo Dresden|Ajax|Feyenoord|Willem II|Heracles|
Sparta Rotterdam|Juventus|Sampdoria|Hellas Verona|Atalanta|Fiorentina|Sporting|Benfica|Vitória de Guimarães|Vasco da Gama|
Flamengo|Palmeiras|Cruzeiro|Legia|Wisła Kraków|Lech Poznań|Jagiellonia|Galatasaray|Beşiktaş|Trabzonspor|Aston Villa|
Crystal Palace|Leyton Orient|Nottingham Forest|Partick Thistle|Hamilton Academical|Raith Rovers|Malmö FF|Hammarby|Rosenborg
"""
_BRANDS = """
Philips|Bosch|Miele|Braun|Grohe|Lavazza|Illy|Dallmayr|Jacobs Krönung|Verkade|Van Houten|Albert Heijn|Hema|Unox|Hilton|
Marriott|Ritz-Carlton|Best Western|Hyatt Regency|Radisson Blu|Holiday Inn|Johnnie Walker|Jim Beam|Jack Daniel's|Ben & Jerry's|
Tommy Hilfiger|Karl Lagerfeld|Hugo Boss|Jil Sander|Paul Smith|Marc O'Polo|Dr. Martens|Ray-Ban|Fisher-Price|Black & Decker|
Johnson Controls|Emerson|Honeywell|Murata|Vishay|Texas Instruments|Analog Devices|Molex|Phoenix Contact|Weidmüller|Bourns|
Panasonic|Würth Elektronik|Littelfuse|Kemet|Yageo|Rohm|Hirose|Eaton|Schneider Electric|Rosenberger|Lindt|Ritter Sport|Haribo|
Maggi|Knorr|Barilla|De Cecco|Mutti|Galbani|Bonne Maman|La Roche-Posay|Yves Rocher|L'Occitane|Nivea|Weleda|Estée Lauder|
Elizabeth Arden|Mary Kay|Dr. Hauschka|Louis Vuitton|Ted Baker|Levi's|Harley-Davidson|Rolls-Royce|Aston Martin|Alfa Romeo|
John Deere|Massey Ferguson|Fendt|Claas|Steinway|Fender|Gibson Les Paul|Moleskine|Faber-Castell|Montblanc|Tiffany|Cartier
"""
_STATIONS = """
Porta Susa|Porta Garibaldi|Santa Maria Novella|Roma Termini|Milano Centrale|Bologna Centrale|Napoli Afragola|La Spezia|
Venezia Mestre|Gare du Nord|Lyon Part-Dieu|Saint-Charles|Matabiau|Köln Messe/Deutz|Frankfurt Süd|Berlin Gesundbrunnen|
Hamburg Dammtor|München Pasing|Leipzig Leutzsch|Basel SBB|Zürich Stadelhofen|Utrecht Centraal|Amsterdam Sloterdijk|
Den Haag HS|Rotterdam Blaak|Warszawa Zachodnia|Kraków Płaszów|Wrocław Mikołajów|Gdańsk Wrzeszcz|Lisboa Oriente|Porto Campanhã|
Coimbra-B|Madrid Chamartín|Barcelona Sants|Sevilla Santa Justa|King's Cross|St Pancras|Clapham Junction|Charing Cross|
Bristol Temple Meads|Edinburgh Waverley|Haydarpaşa|Sirkeci|Pendik|Stockholm Södra|Malmö Syd|Oslo Lysaker|København Østerport
"""
_COMPOSERS = """
Bach|Vivaldi|Händel|Telemann|Haydn|Mozart|Beethoven|Schubert|Schumann|Mendelssohn|Brahms|Bruckner|Mahler|Dvořák|Smetana|
Janáček|Chopin|Liszt|Wagner|Verdi|Puccini|Rossini|Bizet|Berlioz|Debussy|Ravel|Fauré|Tschaikowsky|Schostakowitsch|Sibelius|
Grieg|Nielsen|Elgar|Purcell|Monteverdi|Buxtehude|Zelenka|Pergolesi|Palestrina|Albéniz|Granados|Villa-Lobos|Bartók|Kodály
"""
_WORKS = """
Magnificat|Requiem|Stabat Mater|Te Deum|Gloria|Missa solemnis|Matthäuspassion|Johannespassion|Weihnachtsoratorium|Messias|
Magnificat D-Dur|Sinfonie Nr. 4|Symphony No. 5|Cello Suite|Kantate BWV 147|Nocturne|Prélude|Boléro|La traviata|Così fan tutte|
Die Zauberflöte|Le nozze di Figaro|Carmina Burana|Peer Gynt|Finlandia|Winterreise|Lobgesang|Jesu meine Freude|Ave Maria
"""
_BODIES = """
Ceres|Vesta|Pallas|Juno|Hygiea|Eros|Europa|Io|Callisto|Ganymede|Amalthea|Thebe|Metis|Titan|Rhea|Dione|Tethys|Mimas|
Enceladus|Phoebe|Janus|Pandora|Ariel|Umbriel|Titania|Oberon|Miranda|Puck|Cordelia|Ophelia|Bianca|Cressida|Desdemona|Juliet|
Portia|Rosalind|Belinda|Triton|Nereid|Galatea|Larissa|Charon|Nix|Hydra|Sedna|Haumea|Eris|Luna|Venus|Mercury|Saturn|Altair|
Vega|Rigel|Bellatrix|Sirius|Capella|Castor|Pollux|Regulus|Spica|Antares|Mira|Adhara|Alcyone|Maia|Merope|Electra
"""
_CODES = """
KJFK KORD EDDF EDDM LFPG EGLL LEMD LIRF EHAM LTFM RJTT ZBAA YSSY OMDB FAOR CYYZ SBGR EPWA ESSA LOWW METAR SPECI TAF NOSIG CAVOK
TEMPO BECMG AUTO RMK ABLE STM32 LQFP64 PPLNS
"""
_ROOMS_OF = [
    "Curie",
    "Turing",
    "Lovelace",
    "Noether",
    "Gauss",
    "Hopper",
    "Einstein",
    "Darwin",
    "Newton",
    "Galileo",
    "Kepler",
    "Kant",
    "Mozart",
    "Picasso",
    "Frida",
    "Ada",
    "Tesla",
]
_CHESS = [
    "Najdorf",
    "Scheveningen",
    "Grünfeld",
    "Panov",
    "Tarrasch",
    "Winawer",
    "Marshall",
    "Benoni",
    "Alekhine",
    "Pirc",
    "Philidor",
    "Petroff",
    "Réti",
    "Bird",
    "Larsen",
    "Caro-Kann",
]

WITH_PEOPLE = """
{p} hat gestern angerufen und wartet auf die Rechnung.
Bitte an {p} weiterleiten, Frist ist der {n}. März.
Ansprechpartnerin: {p}, Durchwahl {n}
Laut {p} ist die Heizung seit Dienstag kalt.
Wir haben {p} und {p} eingeladen, {f} kommt später.
Teilnehmer: {p}, {p}, {p}\\nOrt: {c}
Notiz: {f} bringt den Schlüssel mit, {p} unterschreibt.
{p} a appelé ce matin au sujet de la facture {n}.
Le dossier de {p} est complet, merci de prévenir {f}.
Présents : {p}, {p}\\nExcusée : {p}
Voir avec {f} pour le devis, {p} est en congé.
D'après {p}, le colis n'est jamais arrivé.
{p} llamó ayer y pidió un reembolso de {n} euros.
La paciente {p} acude a revisión a las {n}.
Asistentes: {p}, {p} y {p}
Habla con {f}, que tiene las llaves; {p} llega el lunes.
{p} ha chiamato per la caldaia, richiamare dopo le {n}.
Verbale: presenti {p} e {p}, assente {p}.
Chiedi a {f} se {p} ha firmato.
{p} ligou ontem sobre o contrato {n}.
A aluna {p} faltou na terça; avisar {f}.
Presentes: {p}, {p}
{p} heeft gisteren gebeld over bestelling {n}.
Graag doorsturen naar {p}; {f} weet ervan.
Aanwezig: {p}, {p} en {p}
{p} dzwoniła w sprawie faktury {n}.
Obecni: {p}, {p}
{p} dün aradı, fatura {n} hakkında bilgi istedi.
Katılanlar: {p}, {p}
{p} ringde igår om faktura {n}.
Närvarande: {p}, {p}
{p} ringte i går om ordre {n}.
{p} soitti eilen laskusta {n}.
{p} volala kvůli faktuře {n}.
{p} kal call kiya tha, refund abhi tak nahi mila.
Agent ({f}): Namaste, kaise madad karun?\\nCustomer: mera naam {p} hai
{f}: ich bin um {n} da\\n{f}: super, bis gleich
{f}: vale, nos vemos a las {n}\\n{f}: llevo a {f} en el coche
{f}: ok on se retrouve là-bas\\n{f}: j'arrive avec {f}
Name            Role        Since\\n{p}   engineer    20{n}\\n{p}   designer    20{n}
Child        Collected by      Notes\\n{f}       {p}     nut allergy\\n{f}      {p}     none
| {p} | {n} | open |\\n| {p} | {n} | closed |
{f};{l};{n};aktiv\\n{f};{l};{n};inaktiv
given_name   | {f}\\nfamily_name  | {l}\\nbase_salary  | {n}
{'nombre': '{f}', 'apellidos': '{l} {l}', 'centro': 'A-{n}'}
<label>Nome <input name="nome" value="{f}"></label>\\n<label>Cognome <input name="cognome" value="{l}"></label>
Namn: {p}\\nNärmast anhörig: {f} (make)
Destinatário: {p}\\nContacto: {n}
Interviewer: {p}\\nCandidate: {p}
Medewerker: {p}    Pers.nr: {n}\\nAkkoord: {p}
Demandeur : {p} (Service Paie)\\nMme {l} rappelée.
This overflows for attempt > {n}. Also {f} hit this panic on staging, see #{n}.
Good catch by {f}; {p} will backport it to 3.{n}.
Reviewed with {p}, merging after {f} is back.
Author: {p}\\nDate:   Mon Mar {n} 2025\\n\\n    fix: retry on timeout
Co-authored-by: {p} <x{n}@mail.test>
[14:{n}] {f}: deploy is green\\n[14:{n}] {f}: thanks {f}
Deixar na vizinha, D. {f}, se ausente.
The vet's about Biscuit, this is {f}, please tell Mr {l} to call back.
Patient {p} (bed {n}) was moved; next of kin {p}.
Passenger {p}, seat {n}A, from {c} to {c}.
""".strip().splitlines()

WITHOUT_PEOPLE = """
Jornada {n}. El {k} volvió a perder ante {k}; {k} y {k} empataron a {n}.
Con este resultado, {k} se queda a {n} puntos de {k}.
{k} gegen {k} endete 2:{n}, {k} bleibt Tabellenführer.
{k} heeft met 3-{n} gewonnen van {k}. {k} degradeert.
{k} batte {k} 2-{n}; {k} resta in zona retrocessione.
O {k} venceu o {k} por {n} a 1. Já o {k} empatou.
{k} pokonał {k}, a {k} zremisował z {k}.
{k} beat {k} {n}-0 at home while {k} drew with {k}.
{k}  {n}  12  4  3\\n{k}  {n}  11  5  3\\n{k}  {n}  9  8  2
Inhoud: 1x {b} {w} {n} g, 2x {b} {w}
Description: loyalty tier of the guest ({b} {w}, {b} {w}, ...)
R1-R8   8    CRCW0603{n}K    {b} {w} 4k7 1%
J{n}      1    {n}-45-88     {b} {w} jack, panel
Pos  Art.-Nr.   Bezeichnung     Menge\\n10   {n}-44   {b} {w} DN 25    {n}
Na drie maanden met de {b} {w} ben ik blij; de {b} is goedkoper.
La {b} {w} costa {n} euro, la {b} {w} molto meno.
Ich habe die {b} {w} gegen die {b} {w} getauscht, Modell {n}.
On offer: {b} {w} ({n} ml), {b} {w}, {b} gift set.
{b} {w}: 4 étoiles, livraison en {n} jours.
{w} {w} {n} g x2\\n{b} {n} ml\\n{w} {w}\\nTOTAL {n}.90
Regionale {n}  {s} - {s}\\n{s}   06:{n}\\n{s}   07:{n}
RE {n} {s} – {s}: heute {n} Minuten später ab Gleis 4.
Le train {n} {s} - {s} est supprimé.
{s}              06:{n}  06:54\\n{w} {w}     07:{n}\\n{s}    08:{n}   bin. {n}
Tramwaje linii {n} kursują przez rondo {e} i plac {e}, przystanek {e} {n}.
Autobus {n} odjeżdża spod przystanku „{e}” co {n} minut.
Próximo autobús {n} a {s} desde {s} en {n} min.
Line {n}: {s} to {s} via {w} {w}, platform {n}.
Das Programm stellt {m}s {v} dem wenig bekannten {v} von {m} gegenüber.
Nach der Pause folgt {m}s {v} in der Fassung von 18{n}.
Lunchmusik, orgel ({m}, {m})
Ce soir : {m}, {v} ; puis le {v} de {m}.
Orchestra: {m} {v}, {m} {v} (rev. 19{n})
{v} ({m}), {n}'  -  {v} ({m}), {n}'
{a}   moon ({a})    0.000{n}   0.00{n}   1.41   19{n}\\n{a}   asteroid   2.6{n}   0.2   18{n}
{a} transits {a} on 1{n} March; {a} is at magnitude 4.{n}.
Object   Type   a / AU   e\\n{a}   asteroid   2.7{n}  0.07\\n{a}   moon ({a})   0.0{n}  0.0
{a} steht am Abend neben {a}; der Mond {a} hat {n} km Durchmesser.
{x} {x} {n}651Z 27015G24KT 10SM FEW049 BKN{n} A{n}
{x} {x} {n}650Z 08006KT 9999 BKN021 07/04 Q{n} {x}
{x} {x} {n}700Z 1418/1524 05010KT {x} {x} 1506/{n}
docs: explain how {e} and {e} projections differ
feat: {e}-{e} plot in summary
fix(stats): {e} correction for n < {n}
Add {e}-{e} sampler; drop the {e} heuristic
The constant is computed with the {e} algorithm; a {e}-type inequality gives the {e} bound.
A weaker version of our Lemma {n}.2 follows from the {e}-{e} theorem and a {e} argument.
We compare {e} smoothing, the {e} score and {e}'s kappa over {n} runs.
The {e}-{e} operator on compact quotients has the {e} property.
def {u}(x): return {u}_lower(x, {n})  # {e} score interval ({e}-{e} if n < 40)
Die {e}-Verteilung, das {e}-Verfahren und die {e}sche Ungleichung liefern {n} %.
Le test de {e} et la méthode de {e} donnent p = 0,0{n}.
El teorema de {e}, la ley de {e} y el algoritmo de {e}.
Il teorema di {e} e la costante di {e} valgono per n > {n}.
A lei de {e} e a constante de {e}.
Het {e}-effect en de wet van {e}.
La maladie de {e} et le syndrome de {e}-{e} touchent {n} patients.
Morbus {e}, {e}-Syndrom, {e}-Zeichen positiv.
Enfermedad de {e}, signo de {e} negativo, síndrome de {e}.
{e} disease, {e} sign negative, {e} score {n}, {e}'s triad absent.
Partida modelo. Defensa {h}, variante {h}: 1.e4 c6 2.d4 d5 {n}.exd5
The {h} Defence, {h} variation: 1.d4 Nf6 2.c4 e6; compare the {h} and the {e} Gambit.
{h}-Verteidigung, {h}-Variante, {n}. Tc1 mit Ausgleich.
{"room": "{r}", "start": "2025-03-{n}", "score": 0.{n}}
{"slots": [{"room": "{r}", "score": 0.{n}}, {"room": "{r}", "score": 0.{n}}]}
Room {r}, floor {n}; Raum {r}; salle {r}; sala {r}
Meeting moved to {r} ({n} seats), {r} is closed.
- {name: X-{w}-Key, in: header, required: true, schema: {type: string}}
X-{w}-Id: {n}\\n{w}-{w}: {n}\\nCache-Control: max-age={n}
- `{e}` middleware: rate limits (#{n})\\n- {g} and {g} exporters for the static site
- Crash when `{g}.transform()` returned {n}\\n- Minimum {g} version is 1.{n}
{g}=={n}.0.4\\n{e}=={n}.1.2\\njedi==0.{n}
Storm {g} reached the coast with {n} km/h; Hurricane {g} weakened.
Der Orkan {g} und das Tief {g} bringen {n} mm Regen.
Rosa '{g} {e}' and Clematis '{g}' flower until week {n}.
Château {e} 20{n}, {w} {w}, Domaine {e} {n} €
Typ "{g}"   {n},00   V-{x}-{n}
La constitución de {e}, el puente {e} y la plaza {e} ({n}).
Praça {e}, Largo do {w}, Rua {e}, Serra da {w}: {n} min a pé.
{c} - {c} {n} km\\n{c} - {w} {n} km
{w} (station {n}), {w} {w}, {w} am {w}: Pegel {n} cm
Lövsångare väntas i april. Nästa räkning från {w} {w} den {n} mars.
Le {n} brumaire, {e} s'appuie sur {e}; les grenadiers de {e} et de {e} entrent.
{c} fell in 18{n}; the treaties of {c} and {c} followed.
{o} announced {n} jobs; {o} and {b} declined to comment.
Lieferant: {o}\\nHersteller: {b}\\nArtikel: {w} {n}
Niet thuis? Dan brengen we het pakket naar een punt in de buurt ({n}).
Die Gebühr richtet sich nach Anlage {n}. Ihm sind Lageplan und Gutachten beizufügen.
Dann folgt Schritt {n}. Danach ist das Gerät neu zu starten. Hinweis: Sicherung prüfen.
Sabah olur, kuşlar iner. Sonra {n} dakika bekleyin. Uyarı: Fişi çekin.
Ek {n}: Şifre yenileme. Kullanıcı menüsünden Ayarlar seçilir.
Ensuite, versez {n} ml. Puis laissez reposer. Remarque : Four préchauffé.
Luego, añade {n} g. Después deja reposar. Nota: Horno a 180.
Poi aggiungete {n} g di {w}. Quindi mescolate. Nota: Forno a 180.
Depois junte {n} g de {w}. Agora misture. Nota: Forno a 180.
Potem dodaj {n} g. Następnie wymieszaj. Uwaga: Piekarnik 180.
Sedan tillsätts {n} g. Därefter rörs allt om. Obs: Ugn 180.
Ek chamach Kashmiri mirch, {n} pyaaz, phir Basmati chawal.
Kostenstelle: {n}\\nMitarbeitername:\\nRentenversicherungsnummer:\\nGeburtsdatum:
Dator hämtad\\nPasserkort beställt\\nGenomgång av brandrutiner ({n})
Revert "feat: {w} {w} in summary"\\nBump {w} from {n}.1 to {n}.2
Apparat {n} prüfen, Zugang sperren, Rückmeldung bis {n} Uhr.
MADDE {n} – (1) Alıcı, Satıcı ve Tüketici haklarına sahiptir. (2) Cayma bildirimi yapılır.
§ {n} Gewährleistung. (1) Der Auftragnehmer gewährleistet Mängelfreiheit. (2) Mängel sind anzuzeigen.
A família {w}aceae reúne {n} espécies; {w} {z} e {w} {z} são comuns.
{w} {z} (L.) and {w} {z} were found at {n} m.
| {w} | {n} | {b} |\\n| {w} {w} | {n} | {b} {w} |
Statut : En cours   Priorité : P{n}   Groupe : Support
Estado: Abierto   Prioridad: Alta   Grupo: Soporte {n}
Ensemble vocal {w}, Kammerchor {w}, Orchestre {w}: {n} h
Trelegy 92/55, Eliquis {n} mg, Xarelto {n} mg, Symbicort
Hotel {e}, Pension {g}, Café {e}, Bar {g}: Zimmer {n}
Bistro {g} - table for {n}\\nRestaurant {e} & {e}, {n}:30
MV {g} {e} berthed at {n}; ferry {g} departs {n}:15.
Gymnasium {e}, {e}-Schule, Lycée {g} {e}, Liceo {e}: {n} Klassen
Nagroda im. {e}, Prix {e}, Premio {e}, {e} Prize {n}
""".strip().splitlines()


def _choice(draw: random.Random, words: str) -> Callable[[], str]:
    found = [word.strip() for word in words.replace("\n", "").split("|") if word.strip()]
    return lambda: draw.choice(found)


def documents(
    draw: random.Random, count: int, first: list[str], last: list[str]
) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """Yield made-up pieces of documents with their spans, one to three pieces a document."""
    made = _makers(draw, first, last)
    for _ in range(count):
        text, spans = "", []
        for _ in range(draw.choice((1, 1, 2, 3))):
            template = draw.choice(WITH_PEOPLE if draw.random() < 0.4 else WITHOUT_PEOPLE)
            piece, found = fill(template.replace("\\n", "\n"), made)
            if text:
                text += draw.choice(("\n", "\n", "\n\n", " "))
            spans += [(start + len(text), end + len(text), label) for start, end, label in found]
            text += piece
        yield text, spans


def _makers(draw: random.Random, first: list[str], last: list[str]) -> dict[str, Maker]:
    def one_of(words: list[str]) -> Callable[[], str]:
        return lambda: draw.choice(words)

    def word() -> str:
        return invented(draw) if draw.random() < 0.7 else draw.choice(last)

    return {
        "p": (lambda: name(draw, first, last), "PERSON"),
        "f": (lambda: draw.choice(first) if draw.random() < 0.8 else invented(draw), "PERSON"),
        "l": (lambda: draw.choice(last) if draw.random() < 0.8 else invented(draw), "PERSON"),
        "k": (_choice(draw, _CLUBS), "ORGANIZATION"),
        "b": (_choice(draw, _BRANDS), "ORGANIZATION"),
        "o": (lambda: f"{word()} {draw.choice(('GmbH', 'AG', 'Ltd', 'S.p.A.', 'SARL', 'B.V.', 'Inc.', '& Söhne KG'))}", "ORGANIZATION"),
        "s": (_choice(draw, _STATIONS), "LOCATION"),
        "c": (lambda: draw.choice(_STATIONS.replace("\n", "").split("|")).split()[0], "LOCATION"),
        "m": (one_of(_COMPOSERS.replace("\n", "").split("|")), None),
        "v": (one_of(_WORKS.replace("\n", "").split("|")), None),
        "a": (one_of(_BODIES.replace("\n", "").split("|")), None),
        "x": (one_of(_CODES.split()), None),
        "r": (one_of(_ROOMS_OF), None),
        "h": (one_of(_CHESS), None),
        "w": (word, None),
        "e": (lambda: draw.choice(last), None),
        "g": (lambda: draw.choice(first), None),
        "u": (lambda: draw.choice(last).lower(), None),
        "z": (lambda: invented(draw).lower(), None),
        "n": (lambda: str(draw.randrange(2, 60)), None),
    }  # fmt: skip
