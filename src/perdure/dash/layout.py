"""The frame around every page: landmarks, navigation, and where live parts go."""

from __future__ import annotations

from typing import Final

from perdure import __version__
from perdure.dash.html import Content, Markup, element, link
from perdure.dash.web import Page, Part

PLACES: Final = (
    ("/", "Overview"),
    ("/mounts", "Servers"),
    ("/journal", "Journal"),
    ("/state", "State"),
    ("/handoffs", "Handoffs"),
    ("/drafts", "Drafts"),
    ("/sessions", "Sessions"),
    ("/registry", "Registry"),
)


def whole(page: Page, path: str, *, signs_out: Markup | None = None) -> bytes:
    """A page from doctype to end."""
    here = "/" + path.split("/")[1]
    body = element(
        "body",
        link("Skip to content", "#content", class_="skip"),
        element(
            "header",
            link(element("b", "Perdure"), "/", class_="brand"),
            element(
                "nav", element("ul", [_place(to, name, here) for to, name in PLACES]), aria_label="Pages"
            ),
            element("span", "", id="pulse", role="status"),
            element("button", "Theme", id="theme", type="button", aria_label="Theme: light or dark"),
            signs_out,
        ),
        element(
            "main", element("h1", page.title), [shown(part) for part in page.parts], id="content", tabindex=-1
        ),
        element("footer", element("p", f"Perdure {__version__}")),
        data_live=page.is_live and page.status == 200,
    )
    return _document(page.title, body)


def sign_in(csrf: str, message: str) -> bytes:
    """Asks for the token, which goes into no address."""
    form = element(
        "form",
        element("p", message, role="alert", class_="error") if message else None,
        element("input", type="hidden", name="csrf", value=csrf),
        # Not asked for: a password manager wants a name to keep the token under.
        element("input", type="text", name="name", value="perdure", autocomplete="username", hidden=True),
        element(
            "label",
            element("span", "Token"),
            element(
                "input",
                name="token",
                type="password",
                required=True,
                autofocus=True,
                autocomplete="current-password",
            ),
        ),
        element("p", "The one that perdure serve was started with.", class_="hint"),
        element("button", "Sign in", class_="main"),
        method="post",
        action="/sign-in",
        class_="card stacked",
    )
    body = element("body", element("main", element("h1", "Sign in"), form, id="content"), class_="narrow")
    return _document("Sign in", body)


def shown(part: Part) -> Markup:
    return element("div", part.content, id=part.id, class_="part")


def card(title: str, *content: Content) -> Markup:
    return element("section", element("h2", title), content, class_="card")


def failure(title: str, message: str, status: int) -> Page:
    note = element("p", message, role="alert", class_="error")
    return Page(title, (Part("failure", note),), status, is_live=False)


def _place(to: str, name: str, here: str) -> Markup:
    return element("li", link(name, to, aria_current="page" if to == here else None))


def _document(title: str, body: Markup) -> bytes:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("title", f"{title} · Perdure"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="stylesheet", href="/static/dash.css"),
        element("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        element("script", src="/static/dash.js"),
    )
    return ("<!doctype html>" + element("html", head, body, lang="en")).encode("utf-8", "replace")
