"""The trajectory protocol: exchanges, messages, steps, signals, and how loose calls become trajectories."""
