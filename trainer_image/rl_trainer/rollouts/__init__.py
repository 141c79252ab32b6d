"""Prompts to the samplers, and rollouts back."""
