"""What differs between operating systems, behind small functions. Imports nothing of Perdure."""
