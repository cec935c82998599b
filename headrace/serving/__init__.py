"""The server of registered models: loads what the registry's pointers name, says what is ready."""
