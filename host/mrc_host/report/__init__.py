"""The report of a run: one HTML file that opens offline, and every figure with its data beside it."""

from mrc_host.report.build import make_report

__all__ = ["make_report"]
