"""Child processes: spawning, pipes, reaping, and running a kernel over them."""
