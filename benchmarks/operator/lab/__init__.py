"""Fake nodes under a real control plane, and what is measured on them."""
