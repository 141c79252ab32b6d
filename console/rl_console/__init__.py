"""Console of the operator: the kubectl plugin ``kubectl rl`` and the demo."""

from rl_contracts import __version__ as __version__
