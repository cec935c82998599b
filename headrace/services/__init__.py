"""Use cases behind the command line and the servers: read, import, export, report."""
