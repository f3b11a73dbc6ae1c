"""From a record of a catalog to an entry that can be started: pinned, without a shell, with every input named."""
