"""Gemini's interactions."""
