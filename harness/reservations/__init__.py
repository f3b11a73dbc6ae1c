"""Agents that race for overlapping reservations and write: `python -m harness.reservations`."""
