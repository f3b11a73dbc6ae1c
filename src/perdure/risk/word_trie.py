"""Many words as one regular expression that reads each character once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_Node = dict[int, "_Node | None"]
_END: Final = -1


def word_pattern(words: Iterable[bytes]) -> bytes:
    """A pattern of the longest of the words at a place, as a prefix tree that reads each character once."""
    root: _Node = {}
    for word in words:
        node = root
        for character in word:
            following = node.setdefault(character, {})
            assert following is not None
            node = following
        node[_END] = None
    return _write_tree(root)


def _write_tree(node: _Node) -> bytes:
    branches = [
        re.escape(bytes([character])) + _write_tree(following)
        for character, following in node.items()
        if following is not None
    ]
    if not branches:
        return b""
    joined = b"(?:" + b"|".join(branches) + b")"
    return joined + b"?" if _END in node else joined
