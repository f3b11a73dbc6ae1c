"""The official MCP Registry: its records, its API, and a copy of it on disk."""
