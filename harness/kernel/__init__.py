"""The history explorer of the kernel, and the seeded bugs that prove it can fail."""
