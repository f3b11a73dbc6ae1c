"""What the worker can do, one package per surface."""
