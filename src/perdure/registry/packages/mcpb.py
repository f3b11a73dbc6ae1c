"""Bundles (`.mcpb`): fetched, checked by their hash, unpacked once, and started as their manifest says.

Nothing of a file is looked at before its hash is the one in the record. It is unpacked beside its place and renamed
into it, so that a bundle is there whole or not at all; names that lead out of it, links and bombs are refused.
"""

from __future__ import annotations

import errno
import hashlib
import lzma
import os
import re
import stat
import sys
import tempfile
import zipfile
import zlib
from typing import Any, Final

import msgspec

from perdure.registry.errors import RegistryError
from perdure.registry.file.document import refused
from perdure.registry.http.address import read_address
from perdure.registry.http.client import HttpClient, expected
from perdure.registry.packages.launch_plan import (
    ArgGroup,
    Bundle,
    InputPrompt,
    Naming,
    NotRunnable,
    Plan,
    TextTemplate,
)
from perdure.risk.short_text import is_secret_name
from perdure.storage.user_dirs import data_dir

MAX_BUNDLE: Final = 512 * 1024 * 1024
MAX_UNPACKED: Final = 2 * 1024 * 1024 * 1024
MAX_FILES: Final = 50_000
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "cmd", "powershell", "pwsh", "env"})
DOWNLOAD_S: Final = 600.0
_HOLE: Final = re.compile(r"\$\{([^}]+)\}")
# Two members in one place, a name that is too long. None: bz2 reports damaged data as an error of the system.
_BAD_NAMES: Final = (
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.EILSEQ,
    errno.EINVAL,
    None,
)


class WrongHash(RegistryError):
    """A file that is not the one the record speaks of."""

    code = "wrong_hash"


def fetch_bundle(bundle: Bundle, fetcher: HttpClient | None = None) -> str:
    """The folder of a bundle, fetched if it is not there yet. Raises WrongHash, NotRunnable, RegistryUnavailable."""
    home = os.path.join(data_dir(), "bundles")
    folder = os.path.join(home, bundle.sha256)
    if os.path.isdir(folder):
        return folder
    os.makedirs(home, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=home) as scratch:
        file = os.path.join(scratch, "bundle")
        _fetch(bundle, file, fetcher or HttpClient(timeout_s=DOWNLOAD_S, max_bytes=MAX_BUNDLE))
        inside = os.path.join(scratch, "inside")
        _unpack(file, inside)
        try:
            os.rename(inside, folder)
        except OSError:
            if not os.path.isdir(folder):  # another process was first, with the same hash
                raise
    return folder


def _fetch(bundle: Bundle, file: str, fetcher: HttpClient) -> None:
    digest = hashlib.sha256()
    with open(file, "xb") as out:

        def take(piece: bytes) -> None:
            digest.update(piece)
            out.write(piece)

        reply = fetcher.download(read_address(bundle.url), take)
        if reply.status == 404:
            raise NotRunnable(f"its bundle is gone from {reply.address.origin}")
        expected(reply, 200)
    if digest.hexdigest() != bundle.sha256:
        raise WrongHash(
            f"the bundle from {read_address(bundle.url).origin} is not the one that was published",
            hint="its sha256 differs from the catalog's; it was not unpacked",
        )


def _unpack(file: str, folder: str) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            if len(infos) > MAX_FILES or sum(info.file_size for info in infos) > MAX_UNPACKED:
                raise NotRunnable("its bundle unpacks to more than can be meant")
            for info in infos:
                _unpack_one(archive, info, folder)
    except NotRunnable:
        raise
    except OSError as error:
        if error.errno not in _BAD_NAMES:
            raise refused(error, "the bundle") from None
        raise NotRunnable("its bundle holds a file twice, or a name that cannot be a file's") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, ValueError, RuntimeError, EOFError):
        raise NotRunnable("its file is not a bundle: a zip archive with a manifest, whole") from None


def _unpack_one(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: str) -> None:
    parts = info.filename.replace("\\", "/").split("/")
    mode = info.external_attr >> 16
    if info.filename.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or stat.S_ISLNK(mode):
        raise NotRunnable("its bundle holds a name that leads out of it")
    place = os.path.join(folder, *[part for part in parts if part not in ("", ".")])
    if info.is_dir():
        os.makedirs(place, mode=0o700, exist_ok=True)
        return
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, open(place, "xb") as out:
        while piece := source.read(1024 * 1024):
            left -= len(piece)
            if left < 0:
                raise NotRunnable("its bundle holds more than it says")
            out.write(piece)
    os.chmod(place, 0o700 if mode & 0o111 else 0o600)


def complete_plan(plan: Plan, folder: str) -> Plan:
    """The plan with what the manifest says: command, arguments, environment, and what it asks for."""
    manifest = _manifest(folder)
    server = _mapping(manifest.get("server"))
    config = dict(_mapping(server.get("mcp_config")))
    config.update(_mapping(_mapping(config.get("platform_overrides")).get(sys.platform)))
    command = config.get("command")
    if not isinstance(command, str) or not command:
        command, config["args"] = _by_type(server)
    asked = _Settings(_mapping(manifest.get("user_config")), folder, Naming(plan.name.rpartition("/")[2]))
    literal = asked.text(command)
    if literal.asks:
        raise NotRunnable("its bundle asks the user which command to run")
    if os.path.basename(command).lower().removesuffix(".exe") in SHELLS:
        raise NotRunnable("its bundle is started through a shell")
    args = config.get("args")
    env = {
        name: asked.text(value)
        for name, value in _mapping(config.get("env")).items()
        if isinstance(value, str)
    }
    first = "".join(part for part in literal.parts if isinstance(part, str))
    if first.startswith(folder + os.sep) and os.path.isfile(first):
        os.chmod(first, 0o700)
    return msgspec.structs.replace(
        plan,
        command=first,
        words=(
            *(
                ArgGroup((asked.text(arg),))
                for arg in (args if isinstance(args, list) else [])
                if isinstance(arg, str)
            ),
            *plan.words,
        ),
        env={**env, **plan.env},
    )


class _Settings:
    """The manifest's variables: places of this machine, and what the user is asked for."""

    def __init__(self, declared: dict[str, Any], folder: str, naming: Naming) -> None:
        self._declared = declared
        self._naming = naming
        home = os.path.expanduser("~")
        self._places = {
            "__dirname": folder,
            "HOME": home,
            "DESKTOP": os.path.join(home, "Desktop"),
            "DOCUMENTS": os.path.join(home, "Documents"),
            "DOWNLOADS": os.path.join(home, "Downloads"),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def text(self, source: str) -> TextTemplate:
        found: list[str | InputPrompt] = []
        at = 0
        for match in _HOLE.finditer(source):
            found.append(source[at : match.start()])
            at = match.end()
            name = match[1]
            found.append(
                self._ask(name.removeprefix("user_config."))
                if name.startswith("user_config.")
                else self._places.get(name, match[0])
            )
        found.append(source[at:])
        return TextTemplate(tuple(_joined(found)))

    def _ask(self, name: str) -> InputPrompt:
        one = _mapping(self._declared.get(name))
        default = one.get("default")
        if isinstance(default, str):
            default = "".join(part for part in self.text(default).parts if isinstance(part, str))
        variable = self._naming.of(name)
        return InputPrompt(
            variable=variable,
            label=str(one.get("title") or name),
            description=str(one.get("description") or ""),
            required=one.get("required") is True,
            secret=one.get("sensitive") is True or (default is None and is_secret_name(variable)),
            default=_default(default),
            format={"number": "number", "boolean": "boolean"}.get(str(one.get("type")), "string"),
        )


def _default(found: object) -> str | None:
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) and found != "" else None


def _joined(parts: list[str | InputPrompt]) -> list[str | InputPrompt]:
    """Neighbouring texts as one."""
    found: list[str | InputPrompt] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(last := found[-1], str):
            found[-1] = last + part
        elif part != "":
            found.append(part)
    return found


def _manifest(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, "manifest.json"), "rb") as file:
            found = msgspec.json.decode(file.read().removeprefix(b"\xef\xbb\xbf"))
    except (OSError, msgspec.DecodeError):
        raise NotRunnable("its bundle has no manifest that can be read") from None
    return _mapping(found)


def _by_type(server: dict[str, Any]) -> tuple[str, list[str]]:
    """How a server is started whose manifest only says what it is written in."""
    entry_point = server.get("entry_point")
    place = f"${{__dirname}}/{entry_point}"
    match server.get("type"):
        case "node" if entry_point:
            return "node", [place]
        case "python" if entry_point:
            return "python3", [place]
        case "binary" if entry_point:
            return place, []
    raise NotRunnable("its bundle does not say how it is started")


def _mapping(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
