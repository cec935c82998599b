"""RLDS episodes (Reinforcement Learning Datasets): steps of observation, action, reward and discount.

RLDS fixes names and meaning of a step's fields and leaves observation and action to the data set.
Here an observation is the messages that came since the action before, an action is the model's
answer, both in the shape of chat completions. As RLDS asks, the step that ends an episode holds
the last observation; its action, reward and discount mean nothing and are empty or zero.
"""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.read import read_message
from trajectory.dialects.wire import as_object, as_text, objects
from trajectory.formats.document import DocumentFormat, at_path, need_list, need_objects
from trajectory.formats.openai_messages import write_message
from trajectory.json_form import FormError
from trajectory.message import Message
from trajectory.portable import PortableSignal, PortableStep, Trajectory

_REWARD = "reward"
_SOURCE = "rlds"


def _read(document: JsonObject, where: str) -> Trajectory:
    items = need_list(document, "steps", where)
    if not items:
        raise FormError(f"{where}: steps: an episode has at least one")
    for index, item in enumerate(items):
        _check_flags(item, index, len(items), f"{where}: steps[{index}]")
    steps = [_step(item, f"{where}: steps[{index}]") for index, item in enumerate(items[:-1])]
    metadata = as_object(document.get("episode_metadata"))
    return Trajectory(
        steps=tuple(steps),
        trailing=_observed(items[-1], f"{where}: steps[{len(items) - 1}]"),
        trajectory_id=as_text(metadata.get("episode_id")),
        agent_name=as_text(metadata.get("agent_id")),
        tools=tuple(objects(metadata.get("tools"))),
    )


def _check_flags(item: JsonObject, index: int, count: int, where: str) -> None:
    for name, wanted in (("is_first", index == 0), ("is_last", index == count - 1)):
        if item.get(name, wanted) is not wanted:
            raise FormError(f"{where}: {name}: expected {str(wanted).lower()}")


def _step(item: JsonObject, where: str) -> PortableStep:
    action = as_object(item.get("action")).get("message")
    if not isinstance(action, dict):
        raise FormError(f"{where}: action.message: expected an object")
    reward = item.get(_REWARD, 0.0)
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise FormError(f"{where}: reward: expected a number")
    signals: tuple[PortableSignal, ...] = ()
    if reward != 0:
        signals = (PortableSignal(_REWARD, float(reward), source_kind="env", source=_SOURCE),)
    output = read_message({**action, "role": "assistant"})
    return PortableStep(_observed(item, where), output, signals=signals)


def _observed(item: JsonObject, where: str) -> tuple[Message, ...]:
    messages = as_object(item.get("observation")).get("messages")
    if not isinstance(messages, list):
        raise FormError(f"{where}: observation.messages: expected a list of objects")
    found = need_objects(messages, f"{where}: observation.messages")
    return tuple(read_message(message) for message in found)


def _write(trajectory: Trajectory) -> JsonObject:
    steps: list[JsonValue] = []
    final = next((one.value for one in trajectory.signals if one.value is not None), None)
    for number, step in enumerate(trajectory.steps):
        reward = next((one.value for one in step.signals if one.value is not None), None)
        if reward is None and number == len(trajectory.steps) - 1:
            reward = final
        steps.append(
            _write_step(
                step.observed,
                write_message(step.output),
                reward=float(reward or 0.0),
                discount=1.0,
                is_first=number == 0,
            )
        )
    ended = bool(trajectory.steps) and not trajectory.steps[-1].output.tool_calls()
    last = _write_step(
        trajectory.trailing,
        {"role": "assistant", "content": ""},
        reward=0.0,
        discount=0.0,
        is_first=not steps,
    )
    steps.append({**last, "is_last": True, "is_terminal": ended})
    metadata: JsonObject = {}
    if trajectory.trajectory_id is not None:
        metadata["episode_id"] = trajectory.trajectory_id
    if trajectory.agent_name is not None:
        metadata["agent_id"] = trajectory.agent_name
    if trajectory.tools:
        metadata["tools"] = list(trajectory.tools)
    return {"episode_metadata": metadata, "steps": steps} if metadata else {"steps": steps}


def _write_step(
    observed: tuple[Message, ...],
    action: JsonObject,
    *,
    reward: float,
    discount: float,
    is_first: bool,
) -> JsonObject:
    return {
        "observation": {"messages": [write_message(message) for message in observed]},
        "action": {"message": action},
        "reward": reward,
        "discount": discount,
        "is_first": is_first,
        "is_last": False,
        "is_terminal": False,
    }


FORMAT = DocumentFormat("rlds", "steps and episodes", _read, _write, at_path("episode_metadata"))
import_document = FORMAT.import_document
export_document = FORMAT.export_document

__all__ = ["FORMAT", "export_document", "import_document"]
