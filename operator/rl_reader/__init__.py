"""Reads the stores of one Secret for the operator, in a pod of the Secret's namespace."""
