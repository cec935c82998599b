"""Files and batches at providers: what they hold has surrogates there, and values for who brought it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anthropic
import httpx
import openai
import pytest

from governance.redact.pseudonym import subject_id
from headrace.app.inline import InlineSetup
from proxy.inline.kept_histories import HistoryOwner, KeptHistories
from tests.proxy.gateway_process import GatewayProcess
from tests.support.guard import GuardSetup
from tests.support.inline import inline_setup
from tests.support.keeping_provider import KeepingProvider
from tests.support.upstream import Upstream
from trajectory.surrogate import FORM

EMAIL, NAME, CARD = "petra.ostrova@example.org", "Petra Ostrova", "4111 1111 1111 1111"
OTHER = "mia.lindqvist@example.org"
UNKNOWN = "x-headrace-unknown-surrogates"
SAID = f'My name is {NAME}, mail "{EMAIL}". Größe: 3 €'
SECRET = 'password: "tr0ub4dor\\\\&3"'
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("send", "fetch")
]


@dataclass
class Scene:
    """A gateway with surrogates, and the provider behind it."""

    gateway: GatewayProcess
    setup: InlineSetup
    upstream: Upstream
    provider: KeepingProvider

    def openai(self, key: str = "") -> openai.OpenAI:
        url = f"{self.gateway.url}/model/v1"
        return openai.OpenAI(base_url=url, api_key=key or self.gateway.key, max_retries=0)

    def anthropic(self) -> anthropic.Anthropic:
        url = f"{self.gateway.url}/model"
        return anthropic.Anthropic(base_url=url, api_key=self.gateway.key, max_retries=0)

    def stranger(self) -> str:
        return self.gateway.registry.create(
            tenant_id="acme", app_id="others", environment="ci", purposes=("train_sft",)
        ).secret

    def knows(self, named: str) -> bool:
        """Tell whether the gateway knows anything of what the provider keeps."""
        histories = KeptHistories(self.setup.histories, self.setup.scope_key, seconds=0)
        owner = HistoryOwner("acme", self.gateway.key_id, "model")
        found = histories.find(owner, named)
        histories.close()
        return found is not None

    def sent(self) -> str:
        """Return all that the provider got, in which no value may be."""
        seen = [*self.upstream.seen]
        told = "\n".join(f"{one.target} {one.headers} {one.body.decode()}" for one in seen)
        for value in (EMAIL, NAME, "Ostrova", CARD, OTHER, "Lindqvist", "tr0ub4dor"):
            assert value not in told
        return told


@pytest.fixture(scope="module", params=["plain", "mitmproxy"])
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("batches")
    setup = inline_setup(
        home / "policy",
        routes=["model"],
        restore={"to": ["client", "tool:send"]},
        budget_ms=60_000,
    )
    provider = KeepingProvider()
    with Upstream(provider) as upstream:
        routes = [{"name": name, "upstream": upstream.url} for name in ("model", "other")]
        settings = {"routes": routes, "listener": request.param}
        with GatewayProcess(home / "gateway", settings, inline=setup) as gateway:
            yield Scene(gateway, setup, upstream, provider)


def line(named: str, text: str, **more: Any) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    asked = {"custom_id": named, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(asked, ensure_ascii=False).encode()


def uploaded(client: openai.OpenAI, content: bytes, purpose: Any, name: str = "a.jsonl") -> Any:
    return client.files.create(file=(name, content), purpose=purpose)


def test_answers_of_a_batch_come_back_each_with_its_own_values(scene: Scene) -> None:
    asked = [
        line("first", SAID, tools=TOOLS),
        b"",
        line("second", f"Write to {OTHER}."),
        line(EMAIL, "Hello."),
    ]
    content = b"\n".join(asked) + b"\n"
    with scene.openai() as client:
        file = uploaded(client, content, "batch", f"{NAME}.jsonl")
        assert file.filename == f"{NAME}.jsonl"
        assert client.files.retrieve(file.id).filename == f"{NAME}.jsonl"
        assert client.files.content(file.id).content == content
        batch = client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"for": EMAIL},
        )
        done = client.batches.retrieve(batch.id)
        assert done.metadata == {"for": EMAIL}
        lines = client.files.content(done.output_file_id or "").text.splitlines()
    answers = {one["custom_id"]: one["response"]["body"] for one in map(json.loads, lines)}
    said = {name: one["choices"][0]["message"] for name, one in answers.items()}
    assert said["first"]["content"] == f"You said: {SAID}!"
    assert said["second"]["content"] == f"You said: Write to {OTHER}.!"
    assert said[EMAIL]["content"] == "You said: Hello.!"
    calls = {one["function"]["name"]: one["function"] for one in said["first"]["tool_calls"]}
    assert json.loads(calls["send"]["arguments"]) == {"to": SAID}
    assert EMAIL not in calls["fetch"]["arguments"]
    scene.sent()


def test_another_key_reads_surrogates_of_files_and_batches(scene: Scene) -> None:
    with scene.openai() as client, scene.openai(scene.stranger()) as stranger:
        file = uploaded(client, line("first", SAID), "batch")
        text = stranger.files.content(file.id).text
        assert EMAIL not in text
        assert FORM.search(text)
        named: Any = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = stranger.batches.create(input_file_id=file.id, **named)
        done = stranger.batches.retrieve(batch.id)
        assert EMAIL not in stranger.files.content(done.output_file_id or "").text
        # And who asks first takes nothing from the owner.
        mine = client.batches.create(input_file_id=file.id, **named)
        found = client.batches.retrieve(mine.id)
        assert (
            json.dumps(SAID, ensure_ascii=False)[1:-1]
            in client.files.content(found.output_file_id or "").text
        )
    scene.sent()


@pytest.mark.parametrize("purpose", ["user_data", "assistants"])
def test_a_text_comes_back_as_it_was_and_a_model_says_it(scene: Scene, purpose: str) -> None:
    texts = {
        "a.txt": f"{SAID}\r\n{SECRET}\n\n  Card: {CARD}",
        "b.json": json.dumps({"name": NAME, "inner": json.dumps({"mail": EMAIL})}, indent=2),
        "c.jsonl": f'{{"name":"{NAME}"}}\n\n{{"email": "{EMAIL}", "n": 1.50}}\n',
        "d.csv": f"name,mail\n{NAME},{EMAIL}\n",
    }
    with scene.openai() as client:
        for name, text in texts.items():
            file = uploaded(client, text.encode(), purpose, name)
            assert client.files.content(file.id).content == text.encode()
            content: Any = [
                {"type": "input_file", "file_id": file.id},
                {"type": "input_text", "text": f"Who is {NAME}?"},
            ]
            asked: Any = [{"type": "message", "role": "user", "content": content}]
            answer = client.responses.create(model="m", input=asked)
            assert NAME in answer.output_text
            assert EMAIL in answer.output_text
            assert answer.output_text.endswith(f"Who is {NAME}?!")
            assert scene.knows(file.id)
            assert client.files.delete(file.id).deleted
            assert not scene.knows(file.id)
    scene.sent()


def test_lines_that_fine_tune_come_back_as_they_were(scene: Scene) -> None:
    chat = json.dumps(
        {"messages": [{"role": "user", "content": SAID}, {"role": "assistant", "content": EMAIL}]}
    )
    pair = json.dumps({"prompt": NAME, "completion": f" {SECRET}"}, ensure_ascii=False)
    content = f"{chat}\n{pair}\n\n{pair}".encode()
    with scene.openai() as client:
        file = uploaded(client, content, "fine-tune")
        told = client.files.content(file.id).text.splitlines()
        assert [json.loads(one) if one else one for one in told] == [
            json.loads(one) if one else one for one in content.decode().splitlines()
        ]
    scene.sent()


def test_a_long_file_streams_back(scene: Scene) -> None:
    """Longer than what is held back: it is restored as it passes."""
    lines = [line(f"n-{at}", "x" * 60_000) for at in range(20)]
    content = b"\n".join([*lines, line("last", SAID)])
    with scene.openai() as client:
        file = uploaded(client, content, "batch")
        assert client.files.content(file.id).content == content
    scene.sent()


def test_results_of_a_message_batch_come_back(scene: Scene) -> None:
    tools: Any = [{"name": name, "input_schema": {"type": "object"}} for name in ("send", "fetch")]

    def asked(named: str, text: str, **more: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        params = {"model": "m", "max_tokens": 9, "messages": messages, **more}
        return {"custom_id": named, "params": params}

    with scene.anthropic() as client:
        batches = client.messages.batches
        requests = [asked("first", SAID, tools=tools), asked("second", f"Write to {OTHER}.")]
        made = batches.create(requests=requests)
        done = batches.retrieve(made.id)
        assert done.results_url == f"/v1/messages/batches/{made.id}/results"
        results: Any = {one.custom_id: one.result for one in batches.results(made.id)}
        blocks = results["first"].message.content
        assert blocks[0].text == f"You said: {SAID}!"
        called = {one.name: one.input for one in blocks if one.type == "tool_use"}
        assert called["send"] == {"to": SAID}
        assert EMAIL not in called["fetch"]["to"]
        assert results["second"].message.content[0].text == f"You said: Write to {OTHER}.!"
        assert scene.knows(made.id)
        batches.delete(made.id)
        assert not scene.knows(made.id)
    scene.sent()


def test_lists_say_what_their_key_has_made_and_nothing_of_others(scene: Scene) -> None:
    named: Any = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    with scene.openai() as client, scene.openai(scene.stranger()) as stranger:
        mine = uploaded(client, line("a", SAID), "batch", f"{NAME}.jsonl")
        hers = uploaded(stranger, line("a", SAID), "batch", "Mia Lindqvist.jsonl")
        made = client.batches.create(input_file_id=mine.id, metadata={"for": EMAIL}, **named)
        other = stranger.batches.create(input_file_id=hers.id, metadata={"for": OTHER}, **named)
        # A page at a time: ids of what is kept go upstream as they are.
        names = {one.id: one.filename for one in client.files.list(limit=2)}
        assert names[mine.id] == f"{NAME}.jsonl"
        assert FORM.search(names[hers.id])
        batches = {one.id: one for one in client.batches.list(limit=1)}
        assert batches[made.id].metadata == {"for": EMAIL}
        assert FORM.fullmatch(str((batches[other.id].metadata or {})["for"]))
        # The list has named the output, which comes back without another look at its batch.
        output = batches[made.id].output_file_id or ""
        assert NAME in client.files.content(output).text
        assert NAME not in stranger.files.content(output).text
        seen = {one.id: one.filename for one in stranger.files.list()}
        assert FORM.search(seen[mine.id])
        assert seen[hers.id] == "Mia Lindqvist.jsonl"
        assert client.files.with_raw_response.list().headers.get(UNKNOWN) is None
    scene.sent()


def test_a_list_leads_to_results_of_a_message_batch(scene: Scene) -> None:
    messages: Any = [{"role": "user", "content": SAID}]
    params: Any = {"model": "m", "max_tokens": 9, "messages": messages}
    with scene.anthropic() as client:
        batches = client.messages.batches
        made = [batches.create(requests=[{"custom_id": "a", "params": params}]) for _ in range(3)]
        paths = {one.id: one.results_url for one in batches.list(limit=1)}
        for one in made:
            assert paths[one.id] == f"/v1/messages/batches/{one.id}/results"
    scene.sent()


def test_files_for_messages_are_listed_by_their_names_and_forgotten(scene: Scene) -> None:
    with scene.anthropic() as client:
        files = client.beta.files
        file = files.upload(file=(f"{NAME}.txt", SAID.encode(), "text/plain"))
        assert file.filename == f"{NAME}.txt"
        assert files.retrieve_metadata(file.id).filename == f"{NAME}.txt"
        assert {one.id: one.filename for one in files.list(limit=1)}[file.id] == f"{NAME}.txt"
        asked: Any = [
            {"type": "document", "source": {"type": "file", "file_id": file.id}},
            {"type": "text", "text": f"Who is {NAME}?"},
        ]
        messages: Any = [{"role": "user", "content": asked}]
        answer = client.beta.messages.create(model="m", max_tokens=9, messages=messages)
        (said,) = answer.content
        assert said.type == "text"
        assert said.text == f"You said: {SAID} Who is {NAME}?!"
        assert scene.knows(file.id)
        files.delete(file.id)
        assert not scene.knows(file.id)
    scene.sent()


@pytest.mark.parametrize("name", [f"{NAME}.txt", f"Größe von {NAME}.txt"])
def test_a_download_has_the_name_of_its_file(scene: Scene, name: str) -> None:
    with scene.openai() as client, scene.openai(scene.stranger()) as stranger:
        file = uploaded(client, SAID.encode(), "user_data", name)

        def said(by: openai.OpenAI) -> str:
            header = by.files.with_raw_response.content(file.id).headers["content-disposition"]
            plain, mark, encoded = header.partition("; filename*=UTF-8''")
            return unquote(encoded) if mark else plain.split('"')[1]

        assert said(client) == name
        assert NAME not in said(stranger)
    scene.sent()


PDF = b"%PDF-1.7\n(Petra)"
PICTURE = b"\x89PNG\r\n\x1a\n\x00\x00"


@pytest.mark.parametrize(
    ("files", "data"),
    [
        ({"file": ("a.pdf", PDF)}, {"purpose": "user_data"}),
        ({"file": ("a.png", PICTURE, "image/png")}, {"purpose": "vision"}),
        ({"file": ("a.txt", SAID.encode("utf-16"))}, {"purpose": "user_data"}),
        ({"file": ("a.txt", b"x")}, {"purpose": "user_data", "note": EMAIL}),
        ({"file": ("a.txt", b"x"), "mask": ("b.txt", b"x")}, {"purpose": "user_data"}),
        ({"file": ("a.jsonl", b'{"custom_id": "a", "body": {}}')}, {"purpose": "batch"}),
        ({"file": ("a.jsonl", SAID.encode())}, {"purpose": "fine-tune"}),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    scene: Scene, files: Any, data: dict[str, str]
) -> None:
    before = len(scene.upstream.seen)
    answer = httpx.post(
        f"{scene.gateway.url}/model/v1/files",
        files=files,
        data=data,
        headers={"authorization": f"Bearer {scene.gateway.key}"},
    )
    assert answer.status_code == 400
    assert "cannot be read" in answer.json()["error"]["message"]
    assert len(scene.upstream.seen) == before


def test_on_a_route_without_it_a_file_passes_byte_for_byte(scene: Scene) -> None:
    content = SAID.encode() + PICTURE
    url = f"{scene.gateway.url}/other/v1"
    with openai.OpenAI(base_url=url, api_key=scene.gateway.key, max_retries=0) as client:
        file = uploaded(client, content, "user_data")
        assert client.files.content(file.id).content == content
    assert content in scene.upstream.seen[-2].body
    scene.upstream.seen.clear()


def test_erasing_a_person_takes_what_is_kept_of_their_requests(scene: Scene) -> None:
    mail = "bo.andersson@example.org"
    with scene.openai() as client:
        asked = [line("hers", f"My mail is {mail}."), line("other", f"Mine is {OTHER}.")]
        file = uploaded(client, b"\n".join(asked), "batch")
        histories = KeptHistories(scene.setup.histories, scene.setup.scope_key, seconds=0)
        subject = subject_id(scene.setup.pseudonym_key, "acme", mail)
        assert histories.forget([subject]) == 1
        histories.close()
        text = client.files.content(file.id).text
    assert mail not in text
    assert OTHER in text


def test_erasing_an_end_user_takes_what_is_kept_of_their_requests(scene: Scene) -> None:
    mail = "enno.weber@example.org"
    with scene.openai() as client:
        asked = [line("hers", f"Write to {mail}.", user="U-4712"), line("other", f"To {mail}.")]
        file = uploaded(client, b"\n".join(asked), "batch")
        histories = KeptHistories(scene.setup.histories, scene.setup.scope_key, seconds=0)
        subject = subject_id(scene.setup.pseudonym_key, "acme", "U-4712")
        assert histories.forget([subject]) == 1
        histories.close()
        hers, other = client.files.content(file.id).text.splitlines()
    assert mail not in hers
    assert mail in other


@pytest.mark.parametrize("listener", ["plain", "mitmproxy"])
def test_a_judge_of_answers_holds_a_file_back_and_it_comes_back(
    tmp_path: Path, listener: str
) -> None:
    """No tool call can be read in it; where policy lets it pass, it passes with its values."""
    setup = inline_setup(tmp_path / "policy", routes=["model"], budget_ms=60_000)
    rules = {"on_failure": "pass"}
    guard = GuardSetup(tmp_path / "approvals.sqlite", rules, (), answers=("model",))
    content = b"\n".join([*(line(f"n-{at}", "x" * 60_000) for at in range(20)), line("last", SAID)])
    with Upstream(KeepingProvider()) as upstream:
        routes = [{"name": "model", "upstream": upstream.url}]
        settings = {"routes": routes, "listener": listener}
        with GatewayProcess(tmp_path, settings, inline=setup, guard=guard) as gateway:
            url = f"{gateway.url}/model/v1"
            with openai.OpenAI(base_url=url, api_key=gateway.key, max_retries=0) as client:
                file = uploaded(client, content, "batch")
                assert client.files.content(file.id).content == content
