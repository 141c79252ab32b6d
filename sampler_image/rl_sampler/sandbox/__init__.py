"""Runs the policy's programs: a server in its own container, and a confined process per program."""
