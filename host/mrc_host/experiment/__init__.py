"""Experiments: workloads, the window runner, metrics and run directories."""
