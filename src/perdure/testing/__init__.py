"""A kit for testing MCP servers and clients: scriptable fake servers of both eras and raw clients."""
