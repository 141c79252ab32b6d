"""Audits a run from its documents: what was trained, and whether the documents are consistent."""
