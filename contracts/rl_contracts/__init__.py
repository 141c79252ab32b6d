"""Shared by all programs: spec models, documents, stores and policy manifests."""

__version__ = "0.1.0"
