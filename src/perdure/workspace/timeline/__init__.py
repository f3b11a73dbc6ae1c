"""The time machine: every change to a workspace, whichever tool made it."""
