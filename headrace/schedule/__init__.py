"""Nights of training: when they run, what they run, and other schedulers that run them."""
