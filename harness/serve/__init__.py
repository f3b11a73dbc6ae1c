"""Histories of `perdure serve`: real sessions and supervisor, played servers, a clock of its own."""
