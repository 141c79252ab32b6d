"""Spec models: the only source of the CRDs, of defaults and of field names."""
