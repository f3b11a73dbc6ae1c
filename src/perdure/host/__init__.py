"""The I/O shell around the kernel: pipes, processes, timers, files."""
