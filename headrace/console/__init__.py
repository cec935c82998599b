"""The console: Headrace in a browser, for people who would rather look than read a terminal."""
