"""What is right in a language but not in its grammar, put in other words of the same length.

The grammars are older than the languages. Only a text that does not parse is reworded, and each rewording leaves what
the grammar knows as right as it was. A rewording is filled up with its last character, so that places stay.
"""

from __future__ import annotations

import re
from typing import Final

_ECMASCRIPT: Final = (
    # import defer * as name; a member that is an accessor; an escape that only a tag can read
    (r"(?<=\bimport )(?:defer|source)\s+(?=[*\w])", " "),
    (r"\baccessor\s+(?=[\w#\[])", " "),
    # the older word for the attributes of an import
    (r"(?<=[\"'] )assert(?=\s*\{)", "with "),
    (r"\\(?:u(?![0-9a-fA-F]{4}|\{)|x(?![0-9a-fA-F]{2}))", "x"),
    # words of the language for names, and for those of attributes
    (r"\b(?:using|abstract)(?=\s*[.=:;,)?(!&|<>])", "x"),
    (
        r"(?<=\s)(?:class|for|default|as|async|static|type|is|of|in|do|if|new|var|let|this|super)(?==[\"'{])",
        "x",
    ),
    # a lone & in the text or an attribute of an element; elsewhere | stands as well
    (r"(?<!&)&(?!&|#?\w+;)", "|"),
    (r"(?m)^import\b[^;\n]*[\"'](?=\s*\n\s*[(\[])", " "),
)
_TYPESCRIPT: Final = (
    *_ECMASCRIPT,
    (r"(?<=\bexport )type(?= ?\*)", " "),
    (r"\btypeof\s+import\(\s*[\"'][^\"'\n]*[\"']\s*\)", "T"),
    (r"\bimport\(\s*[\"'][^\"'\n]*[\"'](?:,[^()]*)?\s*\)\.", "T"),
    # a member whose name is an operator, where the one before has no semicolon
    (r"(?m)^[ \t]*(?:in|instanceof)(?=\??:\s)", "x"),
    (r"(?<=\babstract )override\s+(?=\w)", " "),
    # variance; type arguments of a template
    (r"(?<=[<,])\s*(?:in\s+out|in|out)\s+(?=\w)", " "),
    (r"(?<=[\w)])<(?:[^<>;()`]|=>|<[^<>;()`]*>)*>(?=`)", " "),
)
_C: Final = (
    # case 1 ... 5, goto *label, a label at the end of a block, a bit-field without a name
    (r"(?<=[\w')])\s*\.\.\.\s*[-+\w'()]+\s*(?=:)", " "),
    (r"(?<=\bgoto)\s*\*[^;{}]*(?=;)", " l"),
    (r"(?<!case )(?<![?:.>\w])\b(?!default\b|public\b|private\b|protected\b)[A-Za-z_]\w*\s*:(?=\s*\})", ";"),
    (r"(?:(?<=\bint)|(?<=char|long|gned|hort|bool|Bool|\w\w_t)|(?<=\bu\d\d))\s*:\s*\w+(?=\s*;)", " "),
    (r"\binterface(?=\s+\w+)", "struct "),
    (r"\b(?:typeof_unqual|__typeof__|__typeof|typeof|_BitInt)\s*\([^()]*\)", "int "),
)
_CPP: Final = (
    *_C,
    (r"(?<=\benum)\s*:\s*[\w:]+(?=\s*\{)", " "),
    (r"(?<=\w)\s*\*+(?=\s*\[[^\]\n]*\]\s*[;,)])", " "),
    # pointers to members
    (r"(?<=\()[\w:]+::(?=\*)", " "),
    (r"(?:->|\.)\*\([^()\n]*\)", " "),
    (r"(?<=[\w>] )[\w:]+::\*+(?=\s*\w)", " "),
    (r"(?<=\))\s*(?:const|noexcept)\b(?=\s*[=;,)])", " "),
    (r"(?<=->)\*(?=\s*\w)", " "),
    (r"=\s*\{\s*\}(?=\s*[,)])", " "),
    (r"(?:(?<=\binline )|(?<=\bconstexpr ))friend\b", " "),
    (r"\b(?:emit|Q_EMIT)\s+(?=[A-Za-z_][\w:.>-]*\s*\()", " "),
    # slots and signals of Qt, modules, attributes, explicit instantiation
    (r"(?<=public|rivate|tected)\s+(?:slots|Q_SLOTS)(?=\s*:)", " "),
    (r"(?<=[\s;}])(?:signals|Q_SIGNALS)(?=\s*:(?!:))", "public "),
    (r"(?m)^[ \t]*(?:export\s+)?(?:module|import)\b[^;{}()=\n]*;", " "),
    (r"(?m)^[ \t]*export(?=\s*\{)", " "),
    (r"\[\[[\w:\s,()\"'.]*\]\]", " "),
    (r"\b(?:extern\s+)?template\s+(?!<)[^;{}]*;", " "),
    # the default of a parameter without a name
    (r"(?<=[*&])\s+=\s*\w+(?=\s*[,)])", " "),
    # a type of one word that makes a value
    (r"\b(?:unsigned|signed|long|short)(?=\s*\{)", "T"),
    # a bit-field with a value, this as a parameter, if consteval, .name{value}, static lambdas, delete("reason")
    (r":\s*\d+(?=\s*(?:=[^=]|\{))", " "),
    (r"(?<=\()\s*this\s+(?=[\w:]+[\s&*]+\w)", " "),
    (r"\bif\s+!?\s*consteval\b", "if(1) "),
    (r"(?<=[{,\s])\.\w+(?=\s*\{)", " "),
    (r"(?<=\))\s*static(?=\s*(?:->|\{))", " "),
    (r"(?<=\])\s*(?:mutable|constexpr|noexcept|static)(?=\s*\{)", " "),
    (r"(?<=\bdelete)\s*\(\s*\"[^\"\n]*\"\s*\)(?=\s*;)", " "),
    (r"(?<=operator\(\))\s*\.\.\.(?=\s*;)", " "),
)
_RUST: Final = (
    # front matter of a script, a mark in the patterns of macros, more than one attribute of a parameter
    (r"(?s)\A(?:#![^\n]*\n)?---[ \t]*[\w.-]*[ \t]*\n.*?\n---[ \t]*(?=\n)", " "),
    (r"(?<=,)\s*~(?=\$|[A-Z]\w*::)", "!"),
    (r"#\[[^\[\]\n]*\]\s*(?=#\[)", " "),
    # safe items of an extern block, bounds and traits that may be const, trait aliases, negative const arguments
    (r"\bsafe\s+(?=fn\b|static\b)", " "),
    (r"(?:~const|\[const\])\s+(?=[\w:])", " "),
    (r"(?<=[:+>])\s*const\s+(?=[A-Z][\w:]*(?:<[^<>{}]*>)?\s*(?:for\b|[,>+{]|where\b))", " "),
    (r"(?<=\bimpl )const\s+(?=[\w:])", " "),
    (r"\bconst\s+(?=(?:unsafe\s+)?trait\b)", " "),
    (r"\bauto\s+(?=trait\b)", " "),
    (r"\btrait(?=\s+\w+\s*(?:<[^<>]*>)?\s*=)", "type "),
    (r"(?<=[<,])\s*-(?=\d+\s*[,>])", " "),
    (r"\b(?:try|str|char|bool|[iu](?:8|16|32|64|128|size)|f32|f64)(?=!\s*[(\[{])", "x"),
    (r"\basync\s+(?=Fn(?:Mut|Once)?\()", " "),
)
_WORDS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "go": ((r"(?<![\w.])new(?=\((?!\[|(?:map|struct|func|chan|interface)\b))", "n"),),
    "java": (
        # import module name; statements before super(…)
        (r"(?m)(?<=^import )module\s+(?=[\w.]+\s*;)", " "),
        (r"\b(?:super|this)(?=\s*\()", "x"),
        # Type @Annotation ... name
        (r"@\w+(?:\([^()]*\))?\s*(?=\.\.\.)", " "),
    ),
    "javascript": _ECMASCRIPT,
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "rust": _RUST,
    "c": _C,
    "cpp": _CPP,
}
_compiled: dict[str, list[tuple[re.Pattern[str], str]]] = {}


def reworded(name: str, text: str) -> str:
    """The text with what the grammar does not know put in other words of the same length."""
    if name not in _compiled:
        _compiled[name] = [(re.compile(pattern), words) for pattern, words in _WORDS.get(name, ())]
    for pattern, words in _compiled[name]:
        text = pattern.sub(lambda match, words=words: _filled(words, match[0]), text)  # type: ignore[misc]
    return text


def _filled(words: str, part: str) -> str:
    size = len(part)
    filled = words + words[-1] * (size - len(words)) if size > len(words) else words[:size]
    if "\n" not in part:
        return filled
    return "".join("\n" if old == "\n" else new for old, new in zip(part, filled, strict=True))
