"""Side effects of tools: who may say what, and which replay class follows."""

import json

import pytest

from tests.trajectory.world import World
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.effects import (
    SideEffect,
    effect_of_annotations,
    effect_of_method,
    effect_of_rules,
    replay_class,
)
from trajectory.call import Call
from trajectory.dialects.registry import read_exchange

KEY = b"k" * 32


@pytest.mark.parametrize(
    ("annotations", "effect", "expected"),
    [
        (None, "unknown", "none"),
        ({"title": "x", "readOnlyHint": True, "openWorldHint": False}, "none", "deterministic"),
        ({"readOnlyHint": True}, "read", "approximate"),
        ({"readOnlyHint": True, "destructiveHint": True}, "read", "approximate"),
        ({"destructiveHint": False, "idempotentHint": True}, "idempotent", "approximate"),
        ({"destructiveHint": False}, "write", "none"),
        ({"idempotentHint": True}, "destructive", "none"),
        ({"readOnlyHint": "yes"}, "destructive", "none"),
    ],
)
def test_annotations(annotations: dict[str, object] | None, effect: str, expected: str) -> None:
    found = effect_of_annotations(annotations)  # type: ignore[arg-type]
    assert (found.value, replay_class(found)) == (effect, expected)


def test_methods_and_rules() -> None:
    assert replay_class(effect_of_method("get")) == "approximate"
    assert effect_of_method("POST") is SideEffect.UNKNOWN
    rules = {"get_*": SideEffect.READ, "*": SideEffect.WRITE}
    assert effect_of_rules("get_order", rules) is SideEffect.READ
    assert effect_of_rules("drop", rules) is SideEffect.WRITE
    assert effect_of_rules("drop", {}) is None


def listing(world: World, **annotations: dict[str, object]) -> Call:
    tools = [{"name": name, "annotations": hints} for name, hints in annotations.items()]
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [*tools, {"name": "silent"}]}}
    headers = {"mcp-session-id": "s"}
    return read_exchange(world.exchange("/mcp", request, answer, headers=headers))


@pytest.mark.parametrize("restart", [True, False])
def test_a_dispatch_takes_what_its_server_said(restart: bool) -> None:
    world = World()
    listed = listing(world, add={"readOnlyHint": True}, drop={"destructiveHint": True})
    used = [world.tool(name, {}, "x") for name in ("add", "drop", "silent")]
    rules = {"dr?p": SideEffect.NONE}
    assembler = Assembler(KEY, tool_effects=rules)
    if restart:
        assert assembler.assemble([listed]).placed == ()
        saved = json.loads(json.dumps(assembler.state.to_json()))
        assembler = Assembler(KEY, AssemblerState.from_json(saved), tool_effects=rules)
        placed = assembler.assemble(used).placed
    else:
        placed = assembler.assemble([*reversed(used), listed]).placed
    assert [item.side_effect for item in placed] == ["read", "none", "unknown"]
    again = listing(world, add={})
    assert [
        item.side_effect for item in assembler.assemble([again, world.tool("add", {}, "y")]).placed
    ] == ["unknown"]
