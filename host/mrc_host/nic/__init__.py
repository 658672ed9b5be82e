"""NICs: what every NIC has (:mod:`.base`), the verilated engine, its registers, and the device API on top."""
