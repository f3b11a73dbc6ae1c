"""The pages: plain functions from what is known to what is shown."""
