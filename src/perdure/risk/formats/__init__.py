"""The formats of tokens as their vendors publish them, one table for each trade.

A line is an id and a template (`perdure.risk.template`); a line that begins with `@` names the kind of those
below it. Lengths are the least that the vendor is known to issue, so that a longer successor is found as well.
"""
