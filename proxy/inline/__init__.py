"""Pseudonymisation on the wire: what the provider sees, and its way back."""
