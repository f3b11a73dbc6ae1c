"""A remote MCP server behind a pipe: a process that relays stdio to streamable HTTP."""
