"""Divergence of the policy from its reference: estimates, and the controller of its weight."""
