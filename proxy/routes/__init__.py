"""Routes: where a call goes, which version of a model answers it, and how its request is sent on."""
