"""Commands about the changes of a workspace: list, show, compare, undo, verify."""
