"""Traces and metrics: what is recorded, and the process that sends it to a collector."""
