"""Gemini's ``generateContent``."""
