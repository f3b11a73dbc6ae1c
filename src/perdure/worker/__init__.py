"""The built-in surfaces as an ordinary MCP server over stdio."""
