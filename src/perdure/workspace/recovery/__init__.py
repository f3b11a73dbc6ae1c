"""What a dead process left undecided, settled before the first call."""
