"""The gateware of the testbed, its header layouts and its register map."""
