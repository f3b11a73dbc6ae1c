"""Which format a text has: by what the caller says, the file's name, its first line, or its first bytes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from perdure.validate.report import LEVELS, UNKNOWN

_ALIASES: Final = {
    "bash": "shell", "sh": "shell", "zsh": UNKNOWN, "py": "python", "python3": "python", "pyi": "python",
    "yml": "yaml", "tex": "latex", "md": "markdown", "htm": "html", "js": "javascript", "jsx": "javascript",
    "mjs": "javascript", "node": "javascript", "ts": "typescript", "golang": "go", "rs": "rust",
    "c++": "cpp", "cxx": "cpp", "cc": "cpp", "h": "c", "ndjson": "jsonl", "svg": "xml", "xhtml": "xml",
    "dash": "shell", "ksh": "shell", "postgresql": "sql", "mysql": "sql", "sqlite": "sql", "rb": "ruby",
}  # fmt: skip
_EXTENSIONS: Final = {
    "json": "json", "geojson": "json", "webmanifest": "json", "ipynb": "json", "har": "json",
    "avsc": "json", "topojson": "json", "jsonld": "json", "jsonc": "jsonc", "code-workspace": "jsonc",
    "sublime-settings": "jsonc", "json5": "json5", "jsonl": "jsonl", "ndjson": "jsonl",
    "yaml": "yaml", "yml": "yaml", "cff": "yaml", "toml": "toml",
    "xml": "xml", "xsd": "xml", "xsl": "xml", "xslt": "xml", "svg": "xml", "rss": "xml", "atom": "xml",
    "wsdl": "xml", "plist": "xml", "csproj": "xml", "vcxproj": "xml",
    "resx": "xml", "xaml": "xml", "pom": "xml", "xhtml": "xml", "kml": "xml", "gpx": "xml",
    "py": "python", "pyi": "python", "pyw": "python",
    "tex": "latex", "ltx": "latex", "md": "markdown", "markdown": "markdown", "mdown": "markdown",
    "html": "html", "htm": "html", "css": "css",
    "js": "javascript", "mjs": "javascript", "cjs": "javascript", "jsx": "javascript",
    "ts": "typescript", "mts": "typescript", "cts": "typescript", "tsx": "tsx",
    "go": "go", "rs": "rust", "java": "java", "c": "c", "h": "c",
    "cpp": "cpp", "cc": "cpp", "cxx": "cpp", "hpp": "cpp", "hh": "cpp", "hxx": "cpp", "ipp": "cpp",
    "sh": "shell", "bash": "shell", "bats": UNKNOWN, "sql": "sql", "php": "php", "rb": "ruby", "rake": "ruby",
    "gemspec": "ruby",
}  # fmt: skip
_NAMES: Final = {
    ".babelrc": "jsonc", ".eslintrc": "jsonc", ".jshintrc": "jsonc", ".swcrc": "jsonc", ".prettierrc": "yaml",
    "cspell.json": "jsonc", ".cspell.json": "jsonc", ".mocharc.json": "jsonc", "settings.json": "jsonc",
    "launch.json": "jsonc", "tasks.json": "jsonc", "extensions.json": "jsonc", "keybindings.json": "jsonc",
    ".jscsrc": "jsonc", ".hintrc": "jsonc", ".markdownlint.json": "jsonc", "biome.json": "jsonc",
    ".oxlintrc.json": "jsonc", "rush.json": "jsonc", "typedoc.json": "jsonc", "knip.json": "jsonc",
    "tslint.json": "jsonc", "devcontainer.json": "jsonc", "api-extractor.json": "jsonc",
    ".eslintrc.json": "jsonc", "turbo.json": "jsonc", "deno.json": "jsonc", "language-configuration.json": "jsonc",
    "composer.lock": "json", "flake.lock": "json", "pipfile.lock": "json",
    "cargo.lock": "toml", "poetry.lock": "toml", "uv.lock": "toml", "pipfile": "toml", "pdm.lock": "toml",
    ".clang-format": "yaml", ".clang-tidy": "yaml", ".bashrc": "shell", ".bash_profile": "shell",
    ".profile": "shell", ".bash_aliases": "shell", "pkgbuild": "shell", "readme": UNKNOWN,
}  # fmt: skip
_COMMENTED_JSON: Final = re.compile(
    r"(?:(?:ts|js)config|pyright|appsettings)[\w.-]*\.json|[\w.-]*color-theme\.json", re.I
)
_COMMENTED_FOLDERS: Final = {".vscode", ".devcontainer", ".codesandbox"}
_SHEBANG: Final = re.compile(r"#![ \t]*(?:\S*/)?([^/\s]+)(?:[ \t]+(?:-S[ \t]+)?(\S+))?")
_INTERPRETERS: Final = {
    "bash": "shell", "sh": "shell", "dash": "shell", "ksh": "shell", "node": "javascript", "nodejs": "javascript",
    "deno": "typescript", "bun": "typescript", "python": "python", "pypy": "python",
    "ruby": "ruby", "php": "php",
}  # fmt: skip
_OPENINGS: Final = (
    (re.compile(r"<!doctype\s+html|<html[\s>]", re.I), "html"),
    (re.compile(r"<\?xml[\s?]"), "xml"),
    (re.compile(r"\\documentclass|\\begin\{document\}|%.*\n+\\documentclass"), "latex"),
    (re.compile(r"%YAML|---\s*(?:\n|$)"), "yaml"),
    (re.compile(r"[{\[]"), "json"),
)
# Names that two formats share: translations of Qt, settings in YAML.
_OTHERWISE: Final = {
    "typescript": (re.compile(r"\s*(?:<\?xml\b|<!DOCTYPE TS\b|<TS\b)"), "xml"),
    "jsonc": (re.compile(r"(?:\s|#.*)*(?:---|[\w$-]+:(?:\s|$))"), "yaml"),
}
_TABLE: Final = re.compile(r"\[\[?[\w.\"'-]+\]\]?\s*(?:#.*)?\n\s*(?:[\w.\"'-]+\s*=|#|\[|$)")


def detect(text: str, *, format_hint: str | None = None, target_path: str | None = None) -> str:
    """The format's name, or "unknown". A hint that names no known format counts for nothing."""
    if format_hint:
        named = _by_word(format_hint)
        if named != UNKNOWN:
            return named
    if target_path:
        by_path = _by_path(target_path)
        if by_path in _OTHERWISE and (other := _OTHERWISE[by_path]) and other[0].match(text):
            return other[1]
        if by_path is not None:
            return by_path
    return _by_content(text)


def _by_word(word: str) -> str:
    word = word.strip().lower().lstrip(".")
    word = _ALIASES.get(word, word)
    return word if word in LEVELS else UNKNOWN


def _by_path(path: str) -> str | None:
    pure = PurePosixPath(path.replace("\\", "/"))
    name = pure.name.lower()
    if name in _NAMES:
        return _NAMES[name]
    extension = name.rpartition(".")[2] if "." in name.lstrip(".") or name.startswith(".") else ""
    if extension == "json" and (_COMMENTED_JSON.fullmatch(name) or _COMMENTED_FOLDERS & {*pure.parts}):
        return "jsonc"
    if name.startswith(("makefile", "dockerfile")):
        return UNKNOWN
    return _EXTENSIONS.get(extension)


def _by_content(text: str) -> str:
    text = text.removeprefix("\ufeff")
    shebang = _SHEBANG.match(text)
    if shebang:
        return _by_interpreter(shebang)
    start = text.lstrip()
    if _TABLE.match(start):
        return "toml"
    for pattern, form in _OPENINGS:
        if pattern.match(start):
            return form
    return UNKNOWN


def _by_interpreter(shebang: re.Match[str]) -> str:
    program = shebang[2] if shebang[1] == "env" and shebang[2] else shebang[1]
    program = PurePosixPath(program).name.rstrip("0123456789.")
    return _INTERPRETERS.get(program, UNKNOWN)
