"""The gateway's own API: feedback, traces and documents handed in."""
