"""Files that are written whole or not at all, journaled, and undoable."""
