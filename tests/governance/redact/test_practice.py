"""The practice floor's prompts and tool answers: planted values go, the order stays."""

import json

import pytest

from examples.practice.tasks import contact_for, make_tasks
from examples.practice.tools import quote_text
from governance.policy.redaction import RedactionSpec
from governance.redact import RedactionScope, build_redactor
from tests.governance.redaction_support import KEY
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart

REDACTOR = build_redactor(RedactionSpec(), pseudonym_key=KEY)


@pytest.mark.parametrize("seed", [0, 1, 77])
@pytest.mark.parametrize("split", ["train", "heldout", "fresh"])
def test_planted_values_are_gone_and_orders_whole(seed: int, split: str) -> None:
    for task in make_tasks(seed, split, 40):
        contact = contact_for(seed, task.item, task.quantity)
        answer = quote_text(task.item, task.quantity, task.price_list, contact)
        call = ToolCallPart("call_1", "quote", {"item": task.item, "quantity": task.quantity})
        messages = [
            Message("user", (TextPart(task.prompt),)),
            Message("assistant", (call,)),
            Message("tool", (ToolResultPart("call_1", answer),)),
        ]
        scope = RedactionScope("acme", task.task_id)
        clean = [one.message for one in REDACTOR.redact_messages(messages, scope=scope)]
        stored = json.dumps([message.to_json() for message in clean], ensure_ascii=False)
        assert not [p.kind for p in (*task.planted, *contact) if p.value in stored]
        prompt = clean[0].text().lower()
        assert all(word in prompt for word in (task.account, task.item, str(task.quantity)))
        assert clean[1] == messages[1]
