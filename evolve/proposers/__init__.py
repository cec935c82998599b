"""Proposers: candidates of artefacts, drawn from what agents did; the same sessions give the same ones."""
