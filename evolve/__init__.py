"""The control plane: looks at the lake night by night and decides what, if anything, should change."""
