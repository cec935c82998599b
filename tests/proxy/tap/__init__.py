"""Tests of the tap."""
