"""Sentences of our own that agents see, with and without names, for training the names model."""

import random
from collections.abc import Callable, Iterator

from governance.names.words import first_names, last_names

_PLACES = """
London Paris Berlin Madrid Rome Lisbon Vienna Zurich Prague Warsaw Dublin Oslo Stockholm Helsinki
Athens Istanbul Cairo Lagos Nairobi Accra Johannesburg Mumbai Delhi Bangalore Chennai Karachi Dhaka
Bangkok Jakarta Manila Tokyo Osaka Kyoto Seoul Beijing Shanghai Taipei Sydney Melbourne Auckland
Toronto Montreal Vancouver Boston Chicago Seattle Denver Austin Houston Dallas Miami Atlanta
Phoenix Portland Baltimore Havana Lima Bogota Santiago Quito Caracas Montevideo
"""
_CITIES = _PLACES.split()
_ORGANIZATIONS = (
    "Acme Corp",
    "Globex",
    "Initech",
    "Umbrella Logistics",
    "Stark Industries",
    "Northwind Traders",
    "Contoso",
    "Fabrikam",
    "Blue Harbor Bank",
    "First Meridian Bank",
    "Greenfield Hospital",
    "Oakwood University",
    "Red River Foods",
    "Silverline Airways",
    "Pinnacle Insurance",
    "Harborview Clinic",
    "Lumen Studios",
    "Delta Freight GmbH",
    "Crestview Partners LLC",
    "Orion Telecom Ltd",
)
_ITEMS = (
    "desk lamps",
    "notebooks",
    "coffee mugs",
    "USB cables",
    "office chairs",
    "keyboards",
    "Widgets",
    "monitors",
    "Gift Cards",
    "Pens",
)
_STARTS = "B Br C Ch D F G H J K Kl L M N P R S Sch St T V W Z Y Kr Mb Nd Ts"
_MIDDLES = "a e i o u ai ei ou ar er in an or el il al"
_ENDS = (
    "n r s t k m l v z ski sson berg mann ez ova enko ian idis oğlu wala nathan stein ford ton ley "
    "worth man dez ello etti"
)

# {p} a full name, {f} a given name, {l} a family name, {c} a city, {o} an organisation, {n} a number.
WITH_NAMES = """
My name is {p} and I need help with order {n}.
Hi, I'm {p}. Please quote {n} {i}.
Hello, this is {p} from {o}.
Hello {f}, thanks for reaching out to {o} support.
Dear {p},\n\nYour invoice {n} is ready.
Regards,\n{p}
Best wishes, {p}
Thanks,\n{f}
Kind regards\n{p}\n{o}
Customer: {p}\nOrder: {n} {i}
Contact person: {p}, {o}
{p} asked me to order {n} {i} for the office in {c}.
{p} will sign for it.
Deliver it to {p} in {c}, please.
The invoice goes to {p}.
I spoke with {p} yesterday about ticket {n}.
Please forward this to {f} {l} and {p}.
{p} and {p} joined the call at {n}:00.
Meeting notes: {f} will prepare the report, {p} reviews it.
{"customer": {"name": "{p}", "city": "{c}"}, "quantity": {n}}
{"assignee": "{p}", "status": "open", "id": {n}}
{"name": "{p}", "company": "{o}"}
From: {p}\nTo: {p}\nSubject: Question about invoice {n}
Signed-off-by: {p}
Author: {p}
@{f} can you look at this? cc {p}
The patient {p} was admitted to the hospital in {c}.
Mr. {l} called again about the refund.
Mrs. {p} lives in {c}.
Dr. {l} from {o} confirmed the appointment.
Who is {p}?
Is {f} coming to {c} next week?
According to {p}, the shipment left {c} on Monday.
"We did not expect this", said {p}, who runs {o}.
{p}'s account was closed in {n}.
{f} {l} ({o}) approved the change.
Last login: {p} from {c}
User {p} created the file report.txt
The contract between {p} and {o} ends in {n}.
Reviewed by {p} on 2024-03-{n}
{p}, {c}
Agent: May I have your name?\nCustomer: {p}
You are talking to {p}, a premium customer in {c}.
Book a flight from {c} to {c} for {p}.
I have added {p} to the meeting with {o}.
Thought: the user is {p}, so I should look up the account.
{l}, {f}
name={p}
# Config for {p}
INFO user={p} action=login
Passenger {p} has seat {n}A.
my boss {f} wants {n} {i}
""".strip().splitlines()

WITHOUT_NAMES = """
Please quote {n} {i} for our Premium account.
We have a Business account and need {n} {i}.
What do {n} {i} cost? It is a Gold account.
Order: {n} {i}, Standard account.
Good morning,
Thank you for your help!
The total is {n} dollars.
Hello, how can I help you today?
I looked up the price list: {n} {i} at the Wholesale price.
{"tool": "get_quote", "item": "{i}", "quantity": {n}}
{"error": "Not Found", "code": {n}}
Action: Search[Python Release Notes]
Observation: The Service returned Status Code {n}.
Traceback (most recent call last):\n  File "main.py", line {n}, in <module>\nValueError: Invalid Value
GET /v1/Models HTTP/1.1\nHost: api.example.com\nUser-Agent: Mozilla/5.0
INSERT INTO Orders (Id, Total) VALUES ({n}, {n});
class OrderService(BaseService):\n    def Get(self): return Result(Ok)
You are a helpful assistant. Use the Quote tool. Answer with a number.
Use the tool Get Price before you answer. The price list is Retail.
Step {n}: Open the Settings page and choose Account > Billing.
Monday, Tuesday and Friday in March are fine.
The Quick Start Guide explains Installation and Configuration.
# Release Notes\n## Added\n- New Option for Export\n## Fixed\n- Crash on Start
const App = () => <Button onClick={Save}>Save Changes</Button>
FROM python:3.13\nRUN pip install Flask\nCMD ["Start"]
According to the Terms of Service, Refunds take {n} days.
The Great Gatsby is a novel. The Big Apple is a nickname.
Merge Pull Request #{n} into Main
WARNING: Disk Usage above {n} percent on Node {n}
SELECT Name, Price FROM Products WHERE Stock > {n}
The Function returns True when the List is Empty.
Your Order has been Shipped. Track it under My Orders.
Enter Card Number, Expiry Date and Security Code.
API Reference: Create Chat Completion, List Models, Delete File
Windows, Linux and Android are Operating Systems.
Total: {n}.00 EUR\nTax: {n}.00 EUR\nGrand Total: {n}.00 EUR
Let me check the Price List for Gold Accounts.
Customer account type: Enterprise. Item: {i}. Quantity: {n}.
Our office in {c} is closed.
The train from {c} to {c} is late.
{o} announced a new product.
Ship {n} {i} to {c}.
""".strip().splitlines()


def _name(draw: random.Random, first: list[str], last: list[str]) -> str:
    """Return a full name, sometimes with an initial, two family names or made-up parts."""
    given = draw.choice(first) if draw.random() < 0.85 else _invented(draw)
    family = draw.choice(last) if draw.random() < 0.7 else _invented(draw)
    kind = draw.random()
    if kind < 0.08:
        return f"{given} {draw.choice('ABCDEFGHJKLMNPRSTW')}. {family}"
    if kind < 0.12:
        return f"{given} {family}-{draw.choice(last)}"
    if kind < 0.16:
        return f"{given} {draw.choice(('de', 'van', 'von', 'di', 'da', 'el', 'bin'))} {family}"
    if kind < 0.20:
        return f"{given} {draw.choice(first)} {family}"
    if kind < 0.23:
        return f"{given} {family}".upper()
    if kind < 0.26:
        return f"{given} {family}".lower()
    return f"{given} {family}"


def _invented(draw: random.Random) -> str:
    """Return a word that looks like a name and is in no list, so that shape is learnt too."""
    syllables = "".join(
        draw.choice(_STARTS.split()).lower() + draw.choice(_MIDDLES.split())
        for _ in range(draw.choice((1, 1, 2)))
    )
    return (syllables + draw.choice(_ENDS.split())).capitalize()


def filled(draw: random.Random, count: int) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """Yield made-up sentences with their spans; half of them without people."""
    first, last = sorted(first_names()), sorted(last_names())
    makers: dict[str, tuple[Callable[[], str], str | None]] = {
        "p": (lambda: _name(draw, first, last), "PERSON"),
        "f": (lambda: draw.choice(first), "PERSON"),
        "l": (lambda: draw.choice(last), "PERSON"),
        "c": (lambda: draw.choice(_CITIES), "LOCATION"),
        "o": (lambda: draw.choice(_ORGANIZATIONS), "ORGANIZATION"),
        "n": (lambda: str(draw.randrange(2, 5000)), None),
        "i": (lambda: draw.choice(_ITEMS), None),
    }
    for _ in range(count):
        template = draw.choice(WITH_NAMES if draw.random() < 0.5 else WITHOUT_NAMES)
        yield _fill(template.replace("\\n", "\n"), makers)


def _fill(
    template: str, makers: dict[str, tuple[Callable[[], str], str | None]]
) -> tuple[str, list[tuple[int, int, str]]]:
    text, at = "", 0
    spans: list[tuple[int, int, str]] = []
    while at < len(template):
        maker = makers.get(template[at + 1 : at + 2]) if template[at] == "{" else None
        if maker is None or template[at + 2 : at + 3] != "}":
            text += template[at]
            at += 1
            continue
        value, label = maker[0](), maker[1]
        if label is not None:
            joins = bool(spans) and spans[-1][1] == len(text) - 1 and text[-1:] == " "
            if joins and spans[-1][2] == label == "PERSON":
                spans[-1] = (spans[-1][0], len(text) + len(value), label)
            else:
                spans.append((len(text), len(text) + len(value), label))
        text += value
        at += 3
    return text, spans
