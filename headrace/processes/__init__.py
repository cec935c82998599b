"""Processes that Headrace starts and watches."""
