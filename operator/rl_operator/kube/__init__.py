"""Kubernetes basics: kinds, names, requests to the API server, plans, conditions, settings."""
