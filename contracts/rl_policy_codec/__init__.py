"""The delta format of published policies, in numpy; only trainer and samplers use it."""
