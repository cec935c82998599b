"""The views of the lake, by what they tell."""
