"""Exports of runs to other programs."""
