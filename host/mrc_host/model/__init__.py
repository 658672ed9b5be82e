"""The golden model: a NIC that does everything the profile says, behind the interface of the verilated one.

Importing the package loads nothing; ``nic.ModelNic`` is the NIC.
"""
