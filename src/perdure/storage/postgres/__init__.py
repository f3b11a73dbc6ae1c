"""Stores on PostgreSQL. Needs the extra `perdure[postgres]`; nothing else imports this."""
