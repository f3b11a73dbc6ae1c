"""The frame around every page: landmarks, navigation, which server this is, and where live parts go."""

from __future__ import annotations

import os
from typing import Final

from perdure import __version__
from perdure.dash.context import PageContext, home_path
from perdure.dash.html import Markup, element, link
from perdure.dash.times import zone
from perdure.dash.web import Page, Part

PLACES: Final = (
    ("/", "Overview"),
    ("/events", "Events"),
    ("/timeline", "Timeline"),
    ("/journal", "Journal"),
    ("/sessions", "Sessions"),
    ("/mounts", "Servers"),
    ("/state", "State"),
    ("/reservations", "Reservations"),
    ("/handoffs", "Handoffs"),
    ("/drafts", "Drafts"),
    ("/registry", "Registry"),
)
# Pages without a place of their own in the navigation belong to one that has.
_PARENTS: Final = {"/file": "/journal", "/tools": "/"}


def whole(page: Page, path: str, context: PageContext, *, signs_out: Markup | None = None) -> bytes:
    """A page from doctype to end."""
    here = "/" + path.split("/")[1]
    here = _PARENTS.get(here, here)
    workspaces = context.sessions.settings.workspaces
    body = element(
        "body",
        link("Skip to content", "#content", class_="skip"),
        element(
            "header",
            link(element("b", "Perdure"), "/", class_="brand"),
            element(
                "span",
                ", ".join(os.path.basename(one) or one for one in workspaces),
                class_="place",
                title="\n".join(workspaces),
            ),
            element(
                "nav", element("ul", [_place(to, name, here) for to, name in PLACES]), aria_label="Pages"
            ),
            element("span", "", id="pulse", role="status"),
            element("button", "Theme: auto", id="theme", type="button"),
            signs_out,
        ),
        element(
            "main", element("h1", page.title), [shown(part) for part in page.parts], id="content", tabindex=-1
        ),
        _footer(context),
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
        element("p", "The token that perdure serve was started with.", class_="hint"),
        element("button", "Sign in", class_="main"),
        method="post",
        action="/sign-in",
        class_="card stacked",
    )
    body = element("body", element("main", element("h1", "Sign in"), form, id="content"), class_="narrow")
    return _document("Sign in", body)


def shown(part: Part) -> Markup:
    return element("div", part.content, id=part.id, class_="part", data_news=part.news or None)


def failure(title: str, message: str, status: int) -> Page:
    text = element("p", message, role="alert", class_="error")
    back = element("p", link("Back to the overview", "/"))
    return Page(title, (Part("failure", element("div", text, back)),), status, is_live=False)


def _footer(context: PageContext) -> Markup:
    """Which server this is: with several workspaces one could not tell else whose journal is shown."""
    facts = [
        *context.stores.places(),
        ("Clients connect at", context.address),
        ("Process", str(os.getpid())),
        ("Times", zone()),
        ("Perdure", __version__),
    ]
    shown_facts = [
        element("div", element("dt", name), element("dd", home_path(value))) for name, value in facts if value
    ]
    return element("footer", element("dl", shown_facts))


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
