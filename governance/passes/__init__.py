"""The four passes of the governor, with what goes from one to the next."""
