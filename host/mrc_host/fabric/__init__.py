"""The fabric: topology, uSID plan, packet event model, bounds and drawings.

Modules, in the order in which they build on each other:

* :mod:`~mrc_host.fabric.spec`: what a user writes about a topology, checked;
* :mod:`~mrc_host.fabric.links` and :mod:`~mrc_host.fabric.topology`: hosts, switches, links and paths, in
  integer picoseconds;
* :mod:`~mrc_host.fabric.usid`: addresses, uSID lists, QP templates and entropy values;
* :mod:`~mrc_host.fabric.events`: rules of time, and random numbers that count;
* :mod:`~mrc_host.fabric.packet`: a packet inside the fabric, from bytes or from an object;
* :mod:`~mrc_host.fabric.switch` and :mod:`~mrc_host.fabric.routes`: shift-and-forward, and ways found once;
* :mod:`~mrc_host.fabric.port`: queues, marks and trimming of a port, and the link it feeds;
* :mod:`~mrc_host.fabric.counters`: counters and queue depth samples;
* :mod:`~mrc_host.fabric.taps`: hooks and taps on links;
* :mod:`~mrc_host.fabric.faults`: what can go wrong, as hooks with times and places;
* :mod:`~mrc_host.fabric.model`: the fabric between the NICs, an event simulation of packets;
* :mod:`~mrc_host.fabric.bounds`: what no protocol can beat on a topology;
* :mod:`~mrc_host.fabric.draw`: pictures.
"""
