"""Pattern rules, by what they find."""
