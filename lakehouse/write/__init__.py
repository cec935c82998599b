"""Rows come into the lake exactly once."""
