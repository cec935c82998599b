"""Replay over HTTP: an agent talks to a recording instead of models and tools."""
