"""The HTTP server of every command that serves."""
