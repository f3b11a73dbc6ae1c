"""Perdure: one MCP server that a coding agent can trust with its work."""

__version__ = "0.1.0"
