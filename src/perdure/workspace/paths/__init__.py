"""From a path that a caller names to a place beneath a root, by directory descriptors."""
