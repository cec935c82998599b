"""Models: versions, what serves, lineage and cards."""
