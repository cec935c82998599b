"""Clients: who calls, with which key, within which limits, and what of a credential may be kept."""
