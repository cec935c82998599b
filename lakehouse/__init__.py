"""The lakehouse: Delta tables written exactly once, queried by SQL."""
