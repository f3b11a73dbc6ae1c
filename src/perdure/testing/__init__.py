"""Scriptable fake servers, fault points and the history explorer, shipped for others too."""
