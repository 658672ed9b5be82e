"""Packets of MRC on the host: codec, ICRC, EV expansion, trimming, captures.

Importing the package loads nothing; take what you need from its modules: ``codec`` (decode, encode, build),
``peek`` (a quick look for simulation loops), ``trim``, ``ev_expansion``, ``pcapng``, ``json_form``.
"""
