"""Wire dialects: one module each, reading an exchange into a call."""
