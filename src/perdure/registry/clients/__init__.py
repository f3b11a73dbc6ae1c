"""Other clients' config files as views of a registry: read, written and kept in step, without touching what is theirs."""
