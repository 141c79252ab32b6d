"""Shared by all programs: spec models, documents, stores and policy manifests."""
