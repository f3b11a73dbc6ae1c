"""`perdure registry serve`: a registry file for a team, as a tiered catalog and as the official read API."""
