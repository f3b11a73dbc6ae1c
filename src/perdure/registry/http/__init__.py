"""A registry or catalog on the network."""
