"""Concurrent writers, an editor that takes no lock, and symlinks swapped during a write."""
