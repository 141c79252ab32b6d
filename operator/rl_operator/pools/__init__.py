"""Sampler pools: pods, autoscaling, and pools that several runs share."""
