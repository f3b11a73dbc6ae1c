"""Reservations: paths that one client holds, which other clients cannot write."""
