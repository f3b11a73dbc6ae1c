"""Power cuts: writes to a logged disk, and the disk as a cut could have left it, recovered and judged."""
