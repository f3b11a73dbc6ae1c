"""The servers a person uses: one list, read and written through backends, never resolved where it is stored."""
