"""Runs the policy's programs: a server in a container of its own, each program a confined child."""
