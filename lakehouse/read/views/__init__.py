"""The views of the lake: SQL files by theme, and their reader."""
