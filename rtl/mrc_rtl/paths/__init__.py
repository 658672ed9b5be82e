"""Paths of the engine: path table, spraying, EV expansion."""
