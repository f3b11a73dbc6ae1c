"""The time machine under shell commands: a corpus of operations, each recorded and undone."""
