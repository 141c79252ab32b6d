"""Tools: MCP servers, listed for each group, called for each episode."""
