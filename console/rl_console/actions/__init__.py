"""What commands do once they have started: loaded when a command runs, not for the help."""
