"""Models, optimizers and one training step on the device."""
