"""Manifests without a cluster: reading, checking, writing and comparing them."""
