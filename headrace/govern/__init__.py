"""The governing process: its source, its checkpoint, its side effects and its maintenance."""
