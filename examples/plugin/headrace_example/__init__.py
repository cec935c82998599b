"""A Headrace plugin: one dialect, detector, recipe, reward function and environment."""
