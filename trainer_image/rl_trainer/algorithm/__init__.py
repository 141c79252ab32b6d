"""Losses, estimators and everything between rewards and gradients."""
