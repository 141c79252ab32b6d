"""CRDs and structural schemas from the models."""
