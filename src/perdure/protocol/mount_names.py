"""How mounted servers and their tools are named. Apart from what a mount is, for commands that only read."""

SEPARATOR = "__"
RESERVED = frozenset({"perdure", "host"})  # the host's own names: no mount has one
