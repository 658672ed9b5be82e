"""Comparison of runs: paired by seed, with intervals, a judgement for each metric, as text and as a page."""
