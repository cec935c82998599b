"""A shop's sessions from which each proposer has something to draw."""

from typing import Any

from tests.train.scripts import Script, tool

OLD = (
    tool("get_order", order={"type": "string"}),
    tool("ship", "Sends an order.", order={"type": "string"}, qty={"type": "integer", "maximum": 9},
         speed={"type": "string"}),
    tool("check_stock", item={"type": "string"}),
)  # fmt: skip
_UNKNOWN = "Error: unknown argument 'qty'; did you mean 'quantity'?"
_MISSING = "Error: 'order' is a required property"
_SPEED = "Invalid arguments: speed must be one of: 'slow', 'fast'"


def correction(number: int, said: str, **more: Any) -> Script:
    """A person corrects an answer, and the session ends well."""
    turns = ["How long is a gift card valid?", "> One year.", said, "> Thank you, noted."]
    return Script(number, turns, owner="You help in a shop.", tools=OLD, **more)


def shipping(number: int, *given: tuple[dict[str, Any], str], **more: Any) -> Script:
    """Calls of ``ship`` and what each was told."""
    calls = [("ship", arguments, told) for arguments, told in given]
    turns = ["Send my parcel, please.", *calls, "> It is on its way."]
    return Script(number, turns, owner="You help in a shop.", tools=OLD, **more)


def mended(number: int, **more: Any) -> Script:
    """Three validation errors, each mended by the next call."""
    old = {"qty": 1, "speed": "express"}
    return shipping(
        number,
        (old, _UNKNOWN),
        ({"quantity": 1, "speed": "express"}, _SPEED),
        ({"quantity": 1, "speed": "fast"}, _MISSING),
        ({"quantity": 1, "speed": "fast", "order": f"A{number}"}, "sent"),
        **more,
    )


def work(number: int, *names: str, success: float, asks: bool = True, **more: Any) -> Script:
    """Calls of tools in an order, with a question before the last."""
    turns: list[Any] = ["Please ship my parcel tomorrow."]
    for name in names:
        if name == names[-1] and asks:
            turns += ["> Shall I go ahead?", "Yes."]
        turns.append((name, {"order": f"A{number}"}, "ok"))
    return Script(
        number, [*turns, "> Done."], success=success, owner="You help in a shop.", tools=OLD, **more
    )
