"""Models of a run outside of its training: staged, handed out, promoted, served."""
