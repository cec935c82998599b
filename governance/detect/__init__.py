"""Detection: Presidio as engine and registry, secrets, identifiers and names, on a normalised view."""
