"""Watches of the API server, and which objects a change concerns."""
