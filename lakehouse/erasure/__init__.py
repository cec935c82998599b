"""Erasure and retention: out of the tables and out of their history."""
