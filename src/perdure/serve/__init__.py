"""`perdure serve`: many clients over HTTP, one set of servers behind them."""
