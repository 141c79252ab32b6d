"""The delta format of published policies: pure numpy, for the trainer and the samplers alone."""
