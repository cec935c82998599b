"""Substrates: what may be learned from, selected, walked, split and checked."""
