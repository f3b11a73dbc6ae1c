"""The sans-I/O core of the host: events in, effects out. No sockets, no clocks, no threads."""
