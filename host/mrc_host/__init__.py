"""Experiments, fabric, NIC drivers, packets, reports and the `mrc` command."""
