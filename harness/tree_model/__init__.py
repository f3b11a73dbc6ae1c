"""A model of a file tree with its journal, run beside the write surface: `python -m harness.tree_model`."""
