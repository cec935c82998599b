"""Near-duplicates and contamination: texts that say almost the same, found without comparing all pairs."""

from governance.near.contamination import EvaluationSet, Overlap
from governance.near.features import NearDocument
from governance.near.index import NearIndex, NearMatch

__all__ = ["EvaluationSet", "NearDocument", "NearIndex", "NearMatch", "Overlap"]
