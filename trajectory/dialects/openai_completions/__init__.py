"""OpenAI's older completions."""
