"""Evaluation: held-out tasks, scores, intervals and the gate."""
