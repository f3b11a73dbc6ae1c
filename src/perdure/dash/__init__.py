"""The dashboard of `perdure serve`: pages for people, made on the server."""
