"""A folder to be put in PYTHONPATH, so that every Python started with it begins with a seeded bug."""
