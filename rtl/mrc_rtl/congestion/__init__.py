"""Congestion windows: NSCC by a small sequencer with one adder, and the gate of the sender."""
