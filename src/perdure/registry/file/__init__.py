"""A registry in a file: its formats, and edits that other programs survive."""
