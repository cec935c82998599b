"""An exchange in flight: what the gate knows of a call between its first hook and its last."""

import time
from typing import TYPE_CHECKING

from proxy.admitted import Mode
from proxy.capture import Capture
from proxy.conversation import Conversation
from proxy.plan import Plan
from proxy.tokens import Asked, TokenCheck
from proxy.usage import UsageMeter

if TYPE_CHECKING:
    from proxy.sending import Sending


class Live:
    """One call; slots, because there is one for each."""

    __slots__ = (
        "asked",
        "capture",
        "check",
        "conversation",
        "key_id",
        "meter",
        "mode",
        "plan",
        "sending",
        "sent_bytes",
        "started",
    )

    def __init__(self, plan: Plan, mode: Mode) -> None:
        self.capture: Capture | None = None
        """What records it; None where nothing is kept."""
        self.conversation: Conversation | None = None
        """Its WebSocket messages, once there are any."""
        self.plan = plan
        self.mode = mode
        self.sending: Sending | None = None
        """Its request on the way."""
        self.started = time.monotonic()
        self.asked: Asked | None = None
        """What was asked of the upstream that the client did not ask for."""
        self.check: TokenCheck | None = None
        self.meter: UsageMeter | None = None
        """Counts tokens, for keys that have a budget of them."""
        self.key_id = ""
        self.sent_bytes = 0
        """Length of the request's body, where its head says it and it is text."""
