"""The practice floor: a small provider, tools, agents and a verifier to try Headrace on."""
