"""Replacing a file in one step, with everything kept: mode, owner, attributes, and what others write meanwhile."""
