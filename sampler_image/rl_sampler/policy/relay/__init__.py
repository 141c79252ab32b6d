"""Relay of policies between the samplers of a pool: an option, off by default."""
