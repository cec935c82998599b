"""Training runs: planned, launched, fitted and kept."""
