"""What the command line and the servers do for people: reading, importing, exporting, reporting."""
