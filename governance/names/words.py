"""The word lists of names, and the everyday words that are never taken for a name."""

from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent

_EVERYDAY = """
a about account accounts actually add address admin after again agent ai alexa all also although am
amount an and another any anybody anyone api app apple april are as ask assistant at august authorization
autumn aws azure back bank be because been before being below best bill billing body both bug but buy by
bye call can card case cc cheers chat chatgpt check christmas city claude client code com company
congratulations contact copilot copy could customer customers data date day dear december december's
delivery department description design details developer development did director do does doing done
down each easter edit editor either email en english enough error european even every everybody
everyone everything example excel exactly february feel few file finally first folks following for
france french friday from full function gemini general german get github gmail go good google got
great group guest guys had happy has have having he head hello help her here hey hi him his home hope
how however human i id if important in indeed info information input instead internal international
internet into invoice is issue it item items its january java javascript job json july june just key
kind kindly know ladies last later legal let lets like line linkedin list llm local login look lord
lots mac madam mail main manager many march marketing may maybe me meeting message microsoft might
miss model monday month more morning most mr mrs ms much must my name need new next no nobody none nor
not note nothing november now number object october of off office ok okay on once one online only open
openai or order orders our out output over page paris part party password payment people perhaps person
phone plan please point police post president price pricing problem product products professor project
prompt python quick quote re read really regards regarding reply report request research response
result return review right rule russian said sales same saturday saw say search second section see
send sender senior september server service services session set several shall she ship shipping
should show signed sincerely since sir so software some somebody someone something sorry source spring
staff standard start state status step still stop store street subject such sunday sure support sync
system table take tax team teams tech technical test text than thank thanks that the their them then
there therefore these they thing this those three through thursday thus time title to today token
tomorrow tonight too tool total try tuesday two type under unfortunately united university unless
until up update upon urgent us use used user users usually valued value very via want was we web
wednesday week welcome well were what when where whether which while who whole whom why will windows
winter wish with within without wonderful word work world would xml year yes yesterday yet you your
yours yourself zip zoom north south east west
jython cython ironpython pypy solaris unix linux posix debian ubuntu account's widget widgets business personal premium basic gold silver enterprise retail wholesale
guten gruß grüße grüsse viele liebe danke bitte hallo merci salut gracias saludos obrigado grazie ciao bonjour hola señor senor herr frau
"""


@cache
def _read(name: str) -> frozenset[str]:
    lines = (_HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def hand_written_first_names() -> frozenset[str]:
    """Return the given names that were written down for this project, capitalised."""
    return _read("first_names")


_NO_PEOPLE = frozenset({"America", "Dane", "Francia", "Georgian", "Gregorian", "Oman"})
"""Places, peoples and calendars among the given names that were gathered."""


@cache
def first_names() -> frozenset[str]:
    """Return given names, capitalised."""
    return (hand_written_first_names() | _read("given_names")) - _NO_PEOPLE


@cache
def last_names() -> frozenset[str]:
    """Return family names, capitalised."""
    return _read("last_names")


@cache
def ambiguous_names() -> frozenset[str]:
    """Return given names that are words, months or places too."""
    return _read("ambiguous_names")


@cache
def everyday() -> frozenset[str]:
    """Return lower-case words that are capitalised often without being names."""
    return frozenset(_EVERYDAY.split())


@cache
def common() -> frozenset[str]:
    """Return everyday words and those that people write in lower case."""
    return everyday() | _read("common_words")
