"""YAML documents: loading with a map of lines, one shape, problems as ``file:line: field: text``."""
