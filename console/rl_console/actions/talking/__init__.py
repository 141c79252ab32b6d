"""``chat`` and ``replay``: episodes on request, and how they are shown."""
