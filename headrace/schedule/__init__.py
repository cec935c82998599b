"""Nights that decide and train: when they run, what they run, and other schedulers that run them."""
