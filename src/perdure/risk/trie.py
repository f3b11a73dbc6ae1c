"""Many words as one pattern that reads each character once, in the manner of a prefix tree."""

from __future__ import annotations

import re
from collections.abc import Iterable

Node = dict[int, "Node | None"]
END = -1


def pattern(words: Iterable[bytes]) -> bytes:
    """Matches the longest of the words at a place."""
    root: Node = {}
    for word in words:
        node = root
        for character in word:
            following = node.setdefault(character, {})
            assert following is not None
            node = following
        node[END] = None
    return _written(root)


def _written(node: Node) -> bytes:
    branches = [
        re.escape(bytes([character])) + _written(following)
        for character, following in node.items()
        if following is not None
    ]
    if not branches:
        return b""
    joined = b"(?:" + b"|".join(branches) + b")"
    return joined + b"?" if END in node else joined
