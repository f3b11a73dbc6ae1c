"""Concurrent clients of the state store, recorded, killed and judged: `python -m harness.state --help`."""
