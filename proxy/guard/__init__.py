"""The action guard: which tool calls go on, which wait for a person, and which are refused."""
