"""Shipped policy bundles (YAML) with their tests."""
