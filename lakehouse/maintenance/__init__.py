"""Keeps the tables fast, small and true: compaction, clean-up, checks."""
