"""Tests of proxy.artifacts."""
