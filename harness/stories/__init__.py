"""The failures that the layers exist for, told twice: with Perdure, and with a server that only writes files.

    python -m harness.stories [--plain 'COMMAND'] [--story N]

Each story is a script of what an agent does, and ends with what is on disk. Side by side: how many calls it took, how
many bytes had to be sent a second time, and how long it took from the failure to the file being right.
"""
