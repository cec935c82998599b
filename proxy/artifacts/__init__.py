"""Artefacts at the gateway: what live versions add to model requests."""
