"""Tools: MCP servers and functions, listed for each group and called by the policy."""
