"""A model of a file tree with its journal, run beside the write surface: `python -m perdure.testing.tree_model`."""
