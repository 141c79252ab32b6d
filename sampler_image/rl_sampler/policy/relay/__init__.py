"""Relays policies between the samplers of a pool (``weightSync.transport.relay``)."""
