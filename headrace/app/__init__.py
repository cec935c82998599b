"""What every part of the application stands on: home, settings, keys, logs, output."""
