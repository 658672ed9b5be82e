"""The proofs, a file for each block."""
