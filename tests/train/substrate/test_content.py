"""Content comes from the lake by id; what is gone is said to be gone."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.train.lakes import TOOL, Session, batch, lake_of
from tests.train.substrate.test_build import build
from train.chat import UnrenderableError
from train.substrate.content import ContentStore, message_sizes
from train.substrate.manifest import load_items


def test_conversation_is_complete_and_has_its_tools(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(3))
    item = load_items(build(lake, tmp_path / "out"))[0].item
    conversation = ContentStore.read(lake, [item]).conversation(item)
    assert [m["role"] for m in conversation.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert conversation.trained == (2, 4)
    assert conversation.tools[0]["function"]["name"] == TOOL["function"]["name"]  # type: ignore[index]
    assert message_sizes(lake, [item])[item.item_id] > 0


def test_message_that_is_gone_is_a_reason_not_a_hole(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(3))
    item = load_items(build(lake, tmp_path / "out"))[0].item
    erased = replace(item, message_ids=("b2:gone", *item.message_ids[1:]))
    with pytest.raises(UnrenderableError, match="content_gone"):
        ContentStore.read(lake, [erased]).conversation(erased)


def test_same_message_id_of_another_tenant_is_not_taken(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(3))
    item = load_items(build(lake, tmp_path / "out"))[0].item
    foreign = replace(item, tenant_id="other")
    with pytest.raises(UnrenderableError, match="content_gone"):
        ContentStore.read(lake, [foreign]).conversation(foreign)


def test_content_does_not_show_in_representations(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(3))
    item = load_items(build(lake, tmp_path / "out"))[0].item
    store = ContentStore.read(lake, [item])
    assert "lamps" not in repr(store) + repr(store.conversation(item))


def test_message_that_two_batches_brought_counts_once(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(3), Session(4))
    (once, _) = load_items(build(lake, tmp_path / "out"))
    sizes = message_sizes(lake, [once.item])
    lake.append(batch(Session(3)), app_id="another", version=0)
    assert lake.query("SELECT message_id FROM messages").num_rows > len(
        {row["message_id"] for row in lake.query("SELECT message_id FROM messages").to_pylist()}
    )
    assert message_sizes(lake, [once.item]) == sizes
