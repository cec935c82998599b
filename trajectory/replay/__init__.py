"""Recorded trajectories played back: what was answered, and where a new run leaves the old path."""

from trajectory.replay.answer import Answer, UnwritableError, WireAnswer, write_answer

__all__ = ["Answer", "UnwritableError", "WireAnswer", "write_answer"]
