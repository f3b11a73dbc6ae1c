"""How results look: porcelain or JSON, concise or full, and how arguments are normalized."""
