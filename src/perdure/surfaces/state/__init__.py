"""State that many agents share: versioned keys, leases, waits and once-keys, on any backend of the port."""
