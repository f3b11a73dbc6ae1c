"""`mcp.md` as a registry: its sections as entries, changed line by line; every other byte stays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from perdure.registry.entry import Entry
from perdure.registry.errors import RegistryError
from perdure.registry.file.document import Document, ParsedEntry, line_numbers
from perdure.registry.file.mcp_md_fields import entry_lines, key_of, read_entry
from perdure.registry.file.mcp_md_sections import Line, Section, newline_of, parse_sections

TITLE = "# MCP servers"


class MarkdownDocument(Document):
    """Bytes that are not UTF-8 stay unchanged; a section with such bytes cannot be used."""

    def __init__(self, text: str) -> None:
        self.text = text
        sections = parse_sections(text)
        self._sections = sections.servers
        self.allowed = sections.allowed

    def slot(self, name: str) -> ParsedEntry | None:
        sections = self._by_name.get(name)
        return (
            None
            if sections is None
            else _slot(self.text, sections[0], *line_numbers(self.text, [sections[0].start]))
        )

    @cached_property
    def _by_name(self) -> dict[str, list[Section]]:
        sections: dict[str, list[Section]] = {}
        for section in self._sections:
            sections.setdefault(section.name, []).append(section)
        return sections

    def _every_slot(self) -> list[ParsedEntry]:
        starts = [section.start for section in self._sections]
        self._check_count(starts)
        lines = line_numbers(self.text, starts)
        return [_slot(self.text, section, line) for section, line in zip(self._sections, lines, strict=True)]

    def with_entries(self, *entries: Entry) -> str:
        newline = newline_of(self.text)
        text = self.text or TITLE + newline
        for entry in entries:
            lines = [f"## {entry.name}", *(line for lines in entry_lines(entry).values() for line in lines)]
            if not text.endswith(("\n", "\r")):
                text += newline
            is_separate = text.endswith((newline * 2, "\ufeff" + newline)) or not text.strip("\ufeff\r\n")
            text += ("" if is_separate else newline) + "".join(line + newline for line in lines)
        return text

    def without_entries(self, *names: str) -> str:
        text = self.text
        for section in reversed(self._sections):
            if section.name in names:
                text = text[: _start_of_removal(text, section)] + text[section.end :]
        return text

    def with_enabled(self, name: str, enabled: bool) -> str:
        section = self._section(name)
        line = next((line for line in section.lines if key_of(line) == "enabled"), None)
        word = "true" if enabled else "false"
        if line is not None:
            return self.text[: line.value_at] + word + self.text[line.value_at + len(line.value) :]
        if enabled:
            return self.text
        return self._with_lines(_after(section, ("command", "url")), [f"enabled: {word}"])

    def with_replaced(self, entry: Entry) -> str:
        """Only the lines of keys that differ are written, in place of the first of them."""
        section = self._section(entry.name)
        old = entry_lines(read_entry(section.name, section.lines))
        new = entry_lines(entry)
        document = self
        for key in [*new, *(key for key in old if key not in new)]:
            if old.get(key) != new.get(key):
                document = MarkdownDocument(document._with_key(entry.name, key, new.get(key, [])))
        return document.text

    def _section(self, name: str) -> Section:
        return self._by_name[name][0]

    def _with_key(self, name: str, key: str, lines: Sequence[str]) -> str:
        section = self._section(name)
        present = [line for line in section.lines if key_of(line) == key]
        text = self._with_lines(present[0].start if present else _after(section, ()), lines)
        shift = len(text) - len(self.text)
        for line in reversed(present):
            text = text[: line.start + shift] + text[line.end + shift :]
        return text

    def _with_lines(self, at: int, lines: Sequence[str]) -> str:
        newline = newline_of(self.text)
        before = self.text[:at]
        if lines and before and not before.endswith(("\n", "\r")):
            before += newline
        return before + "".join(line + newline for line in lines) + self.text[at:]


def _slot(text: str, section: Section, line: int) -> ParsedEntry:
    """A section as an entry, or with its error."""
    span = text[section.start : section.end]
    try:
        span.encode()
    except UnicodeEncodeError:
        name = section.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return ParsedEntry(name, None, "not UTF-8", line)
    try:
        return ParsedEntry(section.name, read_entry(section.name, section.lines), line=line)
    except RegistryError as error:
        return ParsedEntry(section.name, None, error.message, line)


def _after(section: Section, keys: Sequence[str]) -> int:
    """After the last line of these keys, else after the last line with a key, else after the heading."""
    lines: Sequence[Line] = [line for line in section.lines if key_of(line) in keys] or section.lines
    return lines[-1].end if lines else section.body


def _start_of_removal(text: str, section: Section) -> int:
    """With the last section of a file the empty line before it is removed."""
    start = section.start
    if section.end < len(text):
        return start
    for newline in ("\r\n", "\n", "\r"):
        if text[:start].endswith(newline * 2):
            return start - len(newline)
    return start
