"""The section `spec.algorithm`."""
