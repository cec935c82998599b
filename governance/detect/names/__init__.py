"""Names of people: by rules and by a model."""
