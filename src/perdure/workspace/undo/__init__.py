"""Taking changes back: undo, redo and rewind."""
