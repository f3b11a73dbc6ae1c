"""The clients' files as the tests use them, and entries of every kind."""

from __future__ import annotations

import string
from pathlib import Path

from hypothesis import strategies as st

from perdure.registry.clients.table import CLIENTS, Client
from perdure.registry.entry import LINE_BREAKS, Entry, Timeouts, Tools
from perdure.registry.templates import Template

FOLDER = Path(__file__).parent / "client_files"
ALL = list(CLIENTS.values())


def golden(client: Client) -> str:
    """A file as the client itself writes it, with other settings around."""
    return path_of(client).read_text(encoding="utf-8")


def path_of(client: Client) -> Path:
    return next(FOLDER.glob(f"{client.name}.*"))


ODD = [
    "", " ", "-", "---", "null", "yes", "1", "1.0", "'", '"', "\\", "a: b # c", "$$", "$HOME", "${X}", "${X:-d}",
    "${env:Y}", "Bearer $T", "{env:Z}", "${{ secrets.Q }}", "$${HOME}", "{file:x}", "${workspaceFolder}",
]  # fmt: skip
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=f"\x00{LINE_BREAKS}"), max_size=16),
    st.text(string.ascii_letters + string.digits + " ,;:#'\"\\{}[]$-=&?%", max_size=12),
    st.sampled_from(ODD),
)
TEMPLATES = st.builds(Template, TEXT)
WORDS = st.text(string.ascii_uppercase + "_", min_size=1, max_size=8)
TOOLS = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=6), max_size=2, unique=True).map(tuple)
SECONDS = st.one_of(st.none(), st.integers(1, 4000).map(float))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    transport = draw(st.sampled_from(["stdio", "stdio", "streamable-http", "sse"]))
    if transport == "stdio":
        way = {
            "command": draw(TEMPLATES.filter(lambda one: one.text.strip() != "")),
            "args": tuple(draw(st.lists(TEMPLATES, max_size=4))),
            "env": draw(st.dictionaries(WORDS, TEMPLATES, max_size=3)),
        }
    else:
        path = draw(st.text(string.ascii_letters + "/-._~?=&%$", max_size=10))
        way = {
            "url": Template(f"https://mcp.example.org/{path}"),
            "headers": draw(st.dictionaries(WORDS, TEMPLATES, max_size=3)),
        }
    return Entry(
        name=draw(st.text(string.ascii_letters + string.digits + "_@+-", min_size=1, max_size=10)),
        transport=transport,
        enabled=draw(st.booleans()),
        description=draw(TEXT),
        tools=Tools(draw(TOOLS), draw(TOOLS)),
        timeouts=Timeouts(draw(SECONDS), draw(SECONDS), draw(SECONDS)),
        required=draw(st.booleans()),
        pin=draw(st.booleans()),
        **way,
    )
