"""Shadows: what another model would have answered, beside the trajectory and never in it."""

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.call import Call
from trajectory.placement import PlacedCall, PlacedLink

SHADOW = "shadow"
"""Role of such a step, kind of its link, and what told where it belongs: the gateway made it."""


def place_shadow(make: Fingerprinter, call: Call) -> tuple[PlacedCall, PlacedLink]:
    """Place a shadow's answer in a trajectory of its own, linked to the step that was copied.

    Nothing goes on from it and nothing is remembered of it, so the client's trajectory is the
    same with it and without it.
    """
    exchange = call.exchange
    placed = PlacedCall(
        call=call,
        trajectory_id=make.identifier("trajectory", exchange.exchange_id),
        step_id=make.identifier("step", exchange.exchange_id),
        step_index=0,
        parent_step_id=None,
        branch=0,
        role_in_graph=SHADOW,
        key_source=SHADOW,
        context_keep=0,
        new_messages=call.context,
    )
    link = PlacedLink(
        tenant_id=exchange.client.tenant_id,
        kind=SHADOW,
        from_step_id=make.identifier("step", exchange.shadow_of),
        to_step_id=placed.step_id,
        trajectory_id=placed.trajectory_id,
        recorded_at=exchange.ended_at or exchange.started_at,
        key_source=SHADOW,
    )
    return placed, link
