"""The section `spec.training`."""
