"""Bundles (`.mcpb`): fetched, checked by their hash, unpacked once, and started as their manifest says.

The hash of a file is checked before anything else is read of it. It is unpacked into a temporary folder that is renamed, so
that a bundle is there whole or not at all. Names that lead out of the folder, links and zip bombs are refused.
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
from perdure.registry.file.document import registry_error
from perdure.registry.http.address import read_address
from perdure.registry.http.client import HttpClient, check_status
from perdure.registry.packages.launch_plan import ArgGroup, Bundle, InputPrompt, Inputs, NotRunnable, Plan
from perdure.registry.templates import Template, escape, join
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
    """A file whose hash is not the one in the record."""

    code = "wrong_hash"


def fetch_bundle(bundle: Bundle, client: HttpClient | None = None) -> str:
    """The folder of a bundle, fetched if it is not there yet. Raises WrongHash, NotRunnable, RegistryUnavailable."""
    home = os.path.join(data_dir(), "bundles")
    folder = os.path.join(home, bundle.sha256)
    if os.path.isdir(folder):
        return folder
    os.makedirs(home, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=home) as scratch:
        file = os.path.join(scratch, "bundle")
        _fetch(bundle, file, client or HttpClient(timeout_s=DOWNLOAD_S, max_bytes=MAX_BUNDLE))
        inside = os.path.join(scratch, "inside")
        _unpack(file, inside)
        try:
            os.rename(inside, folder)
        except OSError:
            if not os.path.isdir(folder):  # another process was first, with the same hash
                raise
    return folder


def _fetch(bundle: Bundle, file: str, client: HttpClient) -> None:
    digest = hashlib.sha256()
    with open(file, "xb") as out:

        def take(piece: bytes) -> None:
            digest.update(piece)
            out.write(piece)

        reply = client.download(read_address(bundle.url), take)
        if reply.status == 404:
            raise NotRunnable(f"its bundle is gone from {reply.address.origin}")
        check_status(reply, 200)
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
                raise NotRunnable("its bundle unpacks to too many or too large files")
            for info in infos:
                _unpack_member(archive, info, folder)
    except NotRunnable:
        raise
    except OSError as error:
        if error.errno not in _BAD_NAMES:
            raise registry_error(error, "the bundle") from None
        raise NotRunnable("its bundle holds a file twice, or a name that cannot be a file's") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, ValueError, RuntimeError, EOFError):
        raise NotRunnable("its file is not a bundle: a zip archive with a manifest, whole") from None


def _unpack_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: str) -> None:
    parts = info.filename.replace("\\", "/").split("/")
    mode = info.external_attr >> 16
    if info.filename.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or stat.S_ISLNK(mode):
        raise NotRunnable("its bundle holds a name that leads out of it")
    path = os.path.join(folder, *[part for part in parts if part not in ("", ".")])
    if info.is_dir():
        os.makedirs(path, mode=0o700, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, open(path, "xb") as out:
        while piece := source.read(1024 * 1024):
            left -= len(piece)
            if left < 0:
                raise NotRunnable("its bundle holds more than it says")
            out.write(piece)
    os.chmod(path, 0o700 if mode & 0o111 else 0o600)


def complete_plan(plan: Plan, folder: str) -> Plan:
    """The plan with the command, arguments, environment and inputs of the manifest."""
    manifest = _manifest(folder)
    server = _mapping(manifest.get("server"))
    config = dict(_mapping(server.get("mcp_config")))
    config.update(_mapping(_mapping(config.get("platform_overrides")).get(sys.platform)))
    if not isinstance(config.get("command"), str) or not config["command"]:
        config["command"], config["args"] = _command_by_type(server)
    settings = _Settings(_mapping(manifest.get("user_config")), folder, plan)
    command = settings.template(config["command"])
    if not command.is_literal:
        raise NotRunnable("its bundle asks the user which command to run")
    if os.path.basename(config["command"]).lower().removesuffix(".exe") in SHELLS:
        raise NotRunnable("its bundle is started through a shell")
    program = command.resolve({})
    if program.startswith(folder + os.sep) and os.path.isfile(program):
        os.chmod(program, 0o700)
    args = config.get("args")
    words = [
        ArgGroup((settings.template(arg),))
        for arg in (args if isinstance(args, list) else [])
        if isinstance(arg, str)
    ]
    env = {
        name: settings.template(value)
        for name, value in _mapping(config.get("env")).items()
        if isinstance(value, str)
    }
    return msgspec.structs.replace(
        plan,
        command=program,
        words=(*words, *plan.words),
        env={**env, **plan.env},
        prompts=settings.inputs.prompts,
    )


class _Settings:
    """The variables of a manifest: folders of this machine, and the user's settings."""

    def __init__(self, declared: dict[str, Any], folder: str, plan: Plan) -> None:
        self.inputs = Inputs(plan.name.rpartition("/")[2])
        self.inputs.prompts |= plan.prompts
        self._declared = declared
        home = os.path.expanduser("~")
        self._values = {
            "__dirname": folder,
            "HOME": home,
            "DESKTOP": os.path.join(home, "Desktop"),
            "DOCUMENTS": os.path.join(home, "Documents"),
            "DOWNLOADS": os.path.join(home, "Downloads"),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def template(self, source: str) -> Template:
        text, at = "", 0
        for match in _HOLE.finditer(source):
            text = join(text, escape(source[at : match.start()]))
            kind, dot, name = match[1].partition(".")
            is_setting = kind == "user_config" and bool(dot)
            text = join(text, self._ask(name) if is_setting else escape(self._values.get(match[1], match[0])))
            at = match.end()
        return Template(join(text, escape(source[at:])))

    def _ask(self, name: str) -> str:
        setting = _mapping(self._declared.get(name))
        default = _default(setting.get("default"))
        if default is not None:
            default = _HOLE.sub(lambda match: self._values.get(match[1], ""), default)
        variable = self.inputs.variable(name)
        return self.inputs.add(
            InputPrompt(
                variable=variable,
                label=str(setting.get("title") or name),
                description=str(setting.get("description") or ""),
                required=setting.get("required") is True,
                secret=setting.get("sensitive") is True or (default is None and is_secret_name(variable)),
                default=default,
                format={"number": "number", "boolean": "boolean"}.get(str(setting.get("type")), "string"),
            )
        )


def _default(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def _manifest(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, "manifest.json"), "rb") as file:
            return _mapping(msgspec.json.decode(file.read().removeprefix(b"\xef\xbb\xbf")))
    except (OSError, msgspec.DecodeError):
        raise NotRunnable("its bundle has no manifest that can be read") from None


def _command_by_type(server: dict[str, Any]) -> tuple[str, list[str]]:
    """The command of a server whose manifest only has its language and its entry point."""
    entry_point = server.get("entry_point")
    path = f"${{__dirname}}/{entry_point}"
    match server.get("type"):
        case "node" if entry_point:
            return "node", [path]
        case "python" if entry_point:
            return "python3", [path]
        case "binary" if entry_point:
            return path, []
    raise NotRunnable("its bundle does not say how it is started")


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
