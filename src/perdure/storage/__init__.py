"""Where things are kept: ports, and one package per backend."""
