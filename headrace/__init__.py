"""The application: command line, settings, and the wiring of the rooms."""
