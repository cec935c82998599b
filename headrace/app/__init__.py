"""Base of every part of the application: home, settings, keys, logs, output."""
