"""What is said of tools, by the operator and by the servers that offer them."""

from collections.abc import Mapping

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.call import Call, ToolDispatch
from trajectory.dialects.wire import as_list, as_object, as_text, clean_text
from trajectory.effects import (
    SideEffect,
    effect_of_annotations,
    effect_of_method,
    effect_of_rules,
)

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
