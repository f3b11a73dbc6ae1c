"""The words and marks of SQL that the rules of `sql_text` know, in capitals."""

from __future__ import annotations

from typing import Final

OPERATORS: Final = {"=", "<", ">", "<=", ">=", "<>", "!=", "||", "+", "/"}
COMPARISONS: Final = {"=", "<", ">", "<=", ">=", "<>", "!="}
NEEDS_OPERAND: Final = {
    "AND",
    "OR",
    "WHERE",
    "HAVING",
    "BY",
    "SET",
    "FROM",
    "JOIN",
    "LIKE",
    "BETWEEN",
    "SELECT",
}
ENDS_CLAUSE: Final = {
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "FROM",
    "AND",
    "OR",
    "UNION",
    "LIMIT",
    ")",
    ";",
    ",",
    "",
}
NO_NAMES: Final = ENDS_CLAUSE | {"AS", "ALL", "DISTINCT", "EXCEPT", "INTERSECT", "MINUS", "THEN"}
AFTER_COMMA: Final = {")", ";", ",", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "VALUES", ""}
STARTERS: Final = (
    "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "TRUNCATE", "GRANT", "REVOKE", "BEGIN",
    "COMMIT", "ROLLBACK", "MERGE", "REPLACE", "EXPLAIN", "WITH",
)  # fmt: skip
CLAUSES: Final = ("FROM", "WHERE", "GROUP", "ORDER", "HAVING", "VALUES", "LIMIT")
WORDS_LIKE: Final = {"VALUE", "GROUPS", "ZORDER", "BORDER", "FORMAT", "AFTER"}
TYPES: Final = frozenset((
    "INT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT", "SERIAL", "BIGSERIAL", "VARCHAR", "VARCHAR2", "NVARCHAR", "CHAR",
    "TEXT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME", "BOOLEAN", "BOOL", "NUMERIC", "DECIMAL", "REAL",
    "FLOAT", "DOUBLE", "NUMBER", "BLOB", "BYTEA", "UUID", "JSON", "JSONB",
))  # fmt: skip
NOT_COLUMNS: Final = {
    "CONSTRAINT",
    "PRIMARY",
    "FOREIGN",
    "CHECK",
    "UNIQUE",
    "DEFAULT",
    "ON",
    "AS",
    "RETURNS",
    "SET",
}
NEW_STATEMENT: Final = {
    "INSERT": "INTO",
    "DELETE": "FROM",
    "CREATE": "TABLE",
    "DROP": "TABLE",
    "ALTER": "TABLE",
}
WHOLE: Final = {"SELECT", "INSERT", "UPDATE", "DELETE", "DROP"}
