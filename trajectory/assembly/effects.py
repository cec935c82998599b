"""Remembers what tool servers said of their tools, so that each dispatch gets its side effect."""

from collections.abc import Mapping

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.state import AssemblerState
from trajectory.call import Call
from trajectory.dialects.wire import as_object, as_text, clean_text
from trajectory.effects import (
    SideEffect,
    effect_of_annotations,
    effect_of_method,
    effect_of_rules,
)

_LIMIT = 5_000
"""Tools that are remembered, the latest listed ones."""


class ToolEffects:
    """What is known of tools: the operator's rules, and what servers listed."""

    def __init__(
        self, state: AssemblerState, maker: Fingerprinter, rules: Mapping[str, SideEffect]
    ) -> None:
        """Remember in ``state``; ``rules`` go before what servers say."""
        self._listed = state.effects
        self._make = maker
        self._rules = rules

    def learn(self, call: Call) -> None:
        """Remember the tools of an MCP server's listing."""
        exchange = call.exchange
        server = clean_text(exchange.upstream + exchange.request.path)
        for tool in call.tools:
            effect = effect_of_annotations(as_object(tool.get("annotations")))
            name = self._name(call, server, as_text(tool.get("name")) or "")
            self._listed.pop(name, None)
            if effect is not SideEffect.UNKNOWN:
                self._listed[name] = effect.value
        while len(self._listed) > _LIMIT:
            del self._listed[next(iter(self._listed))]

    def of(self, call: Call) -> SideEffect:
        """Return the side effect of a dispatched tool."""
        dispatch = call.dispatch
        if dispatch is None:
            return SideEffect.UNKNOWN
        said = effect_of_rules(dispatch.name, self._rules)
        if said is not None:
            return said
        listed = self._listed.get(self._name(call, dispatch.server, dispatch.name))
        if listed is not None:
            return SideEffect(listed)
        if call.dialect == "http.tool":
            return effect_of_method(call.exchange.request.method)
        return SideEffect.UNKNOWN

    def _name(self, call: Call, server: str, name: str) -> str:
        return self._make.short("effect", call.exchange.client.tenant_id, server, name)
