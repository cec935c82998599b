"""What a tool does to the world, as somebody declared it, and what that means for a replay.

Strongest first: what the operator says (``govern.tool_effects``), the annotations with which an MCP
server lists its tools, the method of an HTTP tool. Nobody's word means that it is unknown.
"""

from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.call import Call, ToolDispatch
from trajectory.canonical import JsonObject
from trajectory.dialects.wire import as_list, as_object, as_text, clean_text


class SideEffect(StrEnum):
    """What a call of a tool leaves behind."""

    NONE = "none"
    """Nothing, and it looks at nothing that changes: the same arguments give the same answer."""
    READ = "read"
    """Nothing, but it looks at a world that changes."""
    IDEMPOTENT = "idempotent"
    """A change; the same call again changes nothing more."""
    WRITE = "write"
    """A change that only adds."""
    DESTRUCTIVE = "destructive"
    """A change that may overwrite or delete."""
    UNKNOWN = "unknown"
    """Nobody said."""


_CLASSES = {
    SideEffect.NONE: "deterministic",
    SideEffect.READ: "approximate",
    SideEffect.IDEMPOTENT: "approximate",
}
_METHODS = {
    "GET": SideEffect.READ,
    "HEAD": SideEffect.READ,
    "OPTIONS": SideEffect.READ,
    "PUT": SideEffect.IDEMPOTENT,
    "DELETE": SideEffect.DESTRUCTIVE,
    "PATCH": SideEffect.WRITE,
}


def replay_class(effect: SideEffect) -> str:
    """Return whether a call may be made again: ``deterministic``, ``approximate`` or ``none``.

    Deterministic: the recorded answer is what a new call would give. Approximate: a new call does
    no harm, but may answer otherwise. None: a new call changes something, or nobody knows.
    """
    return _CLASSES.get(effect, "none")


def effect_of_annotations(annotations: JsonObject | None) -> SideEffect:
    """Return what an MCP tool's annotations say; the protocol's defaults hold for missing hints."""
    if not annotations:
        return SideEffect.UNKNOWN
    if annotations.get("readOnlyHint") is True:
        closed = annotations.get("openWorldHint") is False
        return SideEffect.NONE if closed else SideEffect.READ
    if annotations.get("destructiveHint") is not False:
        return SideEffect.DESTRUCTIVE
    idempotent = annotations.get("idempotentHint") is True
    return SideEffect.IDEMPOTENT if idempotent else SideEffect.WRITE


def effect_of_method(method: str) -> SideEffect:
    """Return what an HTTP method promises; a POST promises nothing."""
    return _METHODS.get(method.upper(), SideEffect.UNKNOWN)


def effect_of_rules(name: str, rules: Mapping[str, SideEffect]) -> SideEffect | None:
    """Return what the operator says of a tool: the first pattern that its name fits."""
    return next((effect for pattern, effect in rules.items() if fnmatchcase(name, pattern)), None)


_READS = frozenset({"resources/read", "prompts/get", "tasks/result"})
"""Methods of MCP that look at something and leave nothing behind."""


class ToolEffects:
    """Reads what operator and servers say; what holds for a dispatch is decided when it is placed."""

    def __init__(self, maker: Fingerprinter, rules: Mapping[str, SideEffect]) -> None:
        """Hash with ``maker``; ``rules`` go before what servers say."""
        self._make = maker
        self._rules = rules

    def listed(self, call: Call) -> list[list[str]]:
        """Return name and side effect of each tool in an MCP server's listing."""
        exchange = call.exchange
        own = clean_text(exchange.upstream + exchange.request.path)
        return [
            [
                self.name(call, as_text(server) or "", as_text(tool.get("name")) or ""),
                effect_of_annotations(as_object(tool.get("annotations"))).value,
            ]
            for server in as_list(call.ext.get("servers")) or [own]
            for tool in call.tools
        ]

    def said(self, call: Call, dispatch: ToolDispatch) -> tuple[str, str]:
        """Return the operator's word on a dispatched tool, and what holds when no server has one."""
        said = effect_of_rules(dispatch.name, self._rules)
        if said is not None:
            return said.value, ""
        if call.dialect == "http.tool":
            return "", effect_of_method(call.exchange.request.method).value
        if call.dialect == "mcp" and dispatch.name in _READS:
            return "", SideEffect.READ.value
        return "", SideEffect.UNKNOWN.value

    def name(self, call: Call, server: str, name: str) -> str:
        """Return the short hash under which a server's tool is known."""
        return self._make.short("effect", call.exchange.client.tenant_id, server, name)
