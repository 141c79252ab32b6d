"""Console of the operator: the kubectl plugin ``kubectl rl`` and the demo."""

__version__ = "0.1.0"
