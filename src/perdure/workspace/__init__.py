"""The write engine, without MCP: paths, plans, commits, recovery and retention of one workspace."""
