"""Assembly: loose calls become trajectories, incrementally and without keeping content."""

from trajectory.assembly.assembler import Assembler
from trajectory.assembly.state import AssemblerState

__all__ = ["Assembler", "AssemblerState"]
