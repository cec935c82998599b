"""Real agents, unmodified, through the real gateway against a scripted provider."""
