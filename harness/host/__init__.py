"""Kills, floods and mutated frames against a running host."""
