"""Recorded trajectories played back: what was answered, and where a new run leaves the old path."""

from trajectory.replay.difference import ReplayComparison, ReplayDivergence
from trajectory.replay.player import Player, ReplayReport
from trajectory.replay.recording import RecordedAnswer, RecordedTool, TrajectoryRecording

__all__ = [
    "Player",
    "RecordedAnswer",
    "RecordedTool",
    "ReplayComparison",
    "ReplayDivergence",
    "ReplayReport",
    "TrajectoryRecording",
]
