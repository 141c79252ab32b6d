TERMINATED = 143
"""Exit code after SIGTERM before there is anything to hand back."""
