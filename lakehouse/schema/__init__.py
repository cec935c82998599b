"""The tables of the lake, their columns, and how an older lake is brought up to date."""
