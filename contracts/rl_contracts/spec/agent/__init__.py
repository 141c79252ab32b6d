"""The agent of an episode: its kind, tools, sandbox, endpoints and user code."""
