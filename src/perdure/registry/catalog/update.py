"""Update of an installed server: the newer version of the catalog, merged with the user's changes.

If the user did not change the command line, the new one is taken as a whole. If it was changed, only the words that pin the
version are replaced, and new arguments are reported.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from perdure.registry.catalog import semver
from perdure.registry.entry import Entry, Provenance
from perdure.registry.errors import Unsupported
from perdure.registry.templates import Template

_LAUNCH: Final = ("command", "args", "cwd", "url", "transport")


def merge_update(here: Entry, fresh: Entry, before: Entry | None) -> tuple[Entry, list[str]]:
    """`fresh` is the newest version as it would be installed, `before` the present one as it was.

    Raises Unsupported if the words that pin the version are not in the command line any more.
    """
    notes: list[str] = []
    launch = {name: getattr(fresh, name) for name in _LAUNCH}
    if before is None or _launch(here) != _launch(before):
        launch = _with_version(here, fresh)
        if before is not None and _shape(before) != _shape(fresh):
            notes.append("its arguments changed in the catalog; compare them with yours")
    env, added = _with_new(here.env, fresh.env, before.env if before is not None else {})
    headers, more = _with_new(here.headers, fresh.headers, before.headers if before is not None else {})
    notes += [f"new: {name}" for name in (*added, *more)]
    return (
        structs.replace(here, **launch, env=env, headers=headers, provenance=fresh.provenance),
        notes,
    )


def is_newer(here: Entry, offered: Entry) -> bool:
    """Whether there is an update: a newer version, or, without versions, another command line."""
    mine, theirs = here.provenance or Provenance(), offered.provenance or Provenance()
    if mine.version and theirs.version:
        return semver.is_newer(theirs.version, mine.version)
    return _launch(here) != _launch(offered)


def _launch(entry: Entry) -> tuple[object, ...]:
    return tuple(getattr(entry, name) for name in _LAUNCH)


def _shape(entry: Entry) -> list[str]:
    """The arguments without the version."""
    pin = _pin(entry)
    return [arg.text.replace(pin, "") if pin else arg.text for arg in entry.args]


def _with_version(here: Entry, fresh: Entry) -> dict[str, object]:
    old, new = _pin(here), _pin(fresh)
    if old == new:
        return {}  # a new record of the same package
    words = [] if here.command is None else [here.command, *here.args]
    if here.url is not None:
        words = [here.url]
    if not old or not new or here.transport != fresh.transport or not any(old in word.text for word in words):
        raise Unsupported(
            f"{here.name} was changed by hand, and its version cannot be found in it",
            entry=here.name,
            hint=f"install it anew: perdure registry install --from {(fresh.provenance or Provenance()).name}",
        )

    def update(word: Template | None) -> Template | None:
        return Template(word.text.replace(old, new)) if word is not None else None

    return {
        "command": update(here.command),
        "args": tuple(Template(word.text.replace(old, new)) for word in here.args),
        "url": update(here.url),
    }


def _pin(entry: Entry) -> str:
    """What pins the version in a command line: the package and its version, a bundle's hash, or the URL."""
    provenance = entry.provenance or Provenance()
    return provenance.digest.removeprefix("sha256:") or provenance.package.partition(":")[2]


def _with_new(
    here: dict[str, Template], fresh: dict[str, Template], before: dict[str, Template]
) -> tuple[dict[str, Template], list[str]]:
    """New names of the catalog are added; names that the user removed stay removed."""
    added = [name for name in fresh if name not in here and name not in before]
    kept = {name: value for name, value in here.items() if name in fresh or value != before.get(name)}
    return {**kept, **{name: fresh[name] for name in added}}, added
