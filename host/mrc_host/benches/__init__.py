"""Measurements of ``nox -s bench``: rates of engines, speed of the simulation, size of the state."""
