"""Every system call of a write and of a recovery fails once, under strace."""
