"""Where a lake is, and how its tables are opened."""
