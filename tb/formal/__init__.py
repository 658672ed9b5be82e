"""Proofs about blocks of the gateware, apart from the design that is synthesised.

``python -m formal`` runs them; docs/formal.md says what each one shows.
"""
