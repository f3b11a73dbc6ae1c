"""`mcp.md` as a registry: what it lists, and changes by the span of a line, so that every other byte stays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from perdure.registry.entry import Entry
from perdure.registry.errors import RegistryError
from perdure.registry.file.document import Document, ParsedEntry, line_numbers
from perdure.registry.file.mcp_md_fields import key_of, read, written
from perdure.registry.file.mcp_md_sections import Line, Section, newline_of, parsed

TITLE = "# MCP servers"


class MarkdownDocument(Document):
    """The text of an `mcp.md`. Bytes that are not UTF-8 stay as they are; a section that holds some is unusable."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = parsed(text)
        self._sections = found.servers
        self.allowed = found.allowed

    def slot(self, name: str) -> ParsedEntry | None:
        found = self._named.get(name)
        return (
            None if found is None else _slot(self.text, found[0], *line_numbers(self.text, [found[0].start]))
        )

    @cached_property
    def _named(self) -> dict[str, list[Section]]:
        found: dict[str, list[Section]] = {}
        for one in self._sections:
            found.setdefault(one.name, []).append(one)
        return found

    def _every_slot(self) -> list[ParsedEntry]:
        starts = [one.start for one in self._sections]
        self._check_count(starts)
        lines = line_numbers(self.text, starts)
        return [_slot(self.text, one, line) for one, line in zip(self._sections, lines, strict=True)]

    def installed(self, *entries: Entry) -> str:
        newline = newline_of(self.text)
        text = self.text or TITLE + newline
        for entry in entries:
            lines = [f"## {entry.name}", *(line for lines in written(entry).values() for line in lines)]
            if not text.endswith(("\n", "\r")):
                text += newline
            is_apart = text.endswith((newline * 2, "\ufeff" + newline)) or not text.strip("\ufeff\r\n")
            text += ("" if is_apart else newline) + "".join(line + newline for line in lines)
        return text

    def uninstalled(self, *names: str) -> str:
        """Without every section of these names: also the duplicates, which would come to light otherwise."""
        text = self.text
        for section in reversed(self._sections):
            if section.name in names:
                text = text[: _start_of_removal(text, section)] + text[section.end :]
        return text

    def enabled(self, name: str, enabled: bool) -> str:
        section = self._section(name)
        line = next((one for one in section.lines if key_of(one) == "enabled"), None)
        word = "true" if enabled else "false"
        if line is not None:
            return self.text[: line.value_at] + word + self.text[line.value_at + len(line.value) :]
        if enabled:
            return self.text
        return self._with_lines(_after(section, ("command", "url")), [f"enabled: {word}"])

    def replaced(self, entry: Entry) -> str:
        """Only the lines of keys that differ are written anew, where the first of them stood."""
        section = self._section(entry.name)
        old = written(read(section.name, section.lines))
        new = written(entry)
        document = self
        for key in [*new, *(key for key in old if key not in new)]:
            if old.get(key) != new.get(key):
                document = MarkdownDocument(document._with_key(entry.name, key, new.get(key, [])))
        return document.text

    def _section(self, name: str) -> Section:
        return self._named[name][0]

    def _with_key(self, name: str, key: str, lines: Sequence[str]) -> str:
        section = self._section(name)
        there = [one for one in section.lines if key_of(one) == key]
        text = self._with_lines(there[0].start if there else _after(section, ()), lines)
        shift = len(text) - len(self.text)
        for line in reversed(there):
            text = text[: line.start + shift] + text[line.end + shift :]
        return text

    def _with_lines(self, at: int, lines: Sequence[str]) -> str:
        newline = newline_of(self.text)
        before = self.text[:at]
        if lines and before and not before.endswith(("\n", "\r")):
            before += newline
        return before + "".join(line + newline for line in lines) + self.text[at:]


def _slot(text: str, section: Section, line: int) -> ParsedEntry:
    """A section as an entry, or with the reason why it is none."""
    span = text[section.start : section.end]
    try:
        span.encode()
    except UnicodeEncodeError:
        name = section.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return ParsedEntry(name, None, "not UTF-8", line)
    try:
        return ParsedEntry(section.name, read(section.name, section.lines), line=line)
    except RegistryError as error:
        return ParsedEntry(section.name, None, error.message, line)


def _after(section: Section, keys: Sequence[str]) -> int:
    """Behind the last of these lines, else behind the last line with a key, else below the heading."""
    lines: Sequence[Line] = [one for one in section.lines if key_of(one) in keys] or section.lines
    return lines[-1].end if lines else section.body


def _start_of_removal(text: str, section: Section) -> int:
    """The last section of a file goes with the empty line before it."""
    start = section.start
    if section.end < len(text):
        return start
    for newline in ("\r\n", "\n", "\r"):
        if text[:start].endswith(newline * 2):
            return start - len(newline)
    return start
