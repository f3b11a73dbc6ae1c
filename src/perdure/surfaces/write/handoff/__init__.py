"""Handoffs: a task that stops half-way, left so that the next agent can trust it."""
