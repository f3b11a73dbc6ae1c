"""Concurrent clients of the state store, recorded, killed and judged: `python -m perdure.testing.state --help`."""
