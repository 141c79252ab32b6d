"""Layers with experts: their routers, and what is added to the loss for them."""
