"""The public catalog: every server's lists under public names, and which server has which entry.

`Public` is derived from the servers' catalogs alone and rebuilt when one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from perdure.kernel.cache_hints import list_hint
from perdure.kernel.extensions import Addresses, pages_of, with_addresses
from perdure.kernel.state import ChildCatalog, Disabled, State
from perdure.protocol import eras
from perdure.protocol.eras import Era
from perdure.protocol.frames import Members, encode_members, joined, members
from perdure.protocol.instructions import instructions
from perdure.protocol.mount_names import SEPARATOR
from perdure.protocol.mounts import MountSpec
from perdure.protocol.replay import CONVERGENT, JOURNAL, NEVER, ReplayClass, from_annotations
from perdure.protocol.tool_groups import GROUP_OF, GROUPS, ToolGroup, enabled_groups
from perdure.protocol.tools import Contract

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
CHANGED = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
HOST_MOUNT: Final = "host"
"""No mount has this name: the tools under it are the host's own."""
MOST_TEMPLATE: Final = 2048
MOST_URI: Final = 8192
_CONTRACTS: dict[str, ReplayClass] = {"convergent": CONVERGENT, "probe": JOURNAL, "never": NEVER}
_encode = msgspec.json.encode
_HASHED: Final = ("title", "description", "inputSchema", "outputSchema", "annotations")
_HOST = b'{"name":"perdure","version":"0"}'


class ToolEntry(msgspec.Struct, frozen=True):
    """A tool as the client names it, and what the host must know before it dispatches a call."""

    public: str
    mount: str
    name: str
    replay: ReplayClass = NEVER
    conflict: tuple[str, ...] = ()
    deadline_s: float = 0.0
    definition: bytes = b""
    waits: bool = False


class PromptEntry(msgspec.Struct, frozen=True):
    mount: str
    name: str
    definition: bytes


class _Annotations(msgspec.Struct, frozen=True):
    readOnlyHint: bool | None = None
    idempotentHint: bool | None = None


_contract = msgspec.json.Decoder(Contract)
_annotations = msgspec.json.Decoder(_Annotations)
_string = msgspec.json.Decoder(str)
_catalog = msgspec.msgpack.Decoder(ChildCatalog)


class Public:
    """The merged catalog of all mounts."""

    def __init__(
        self,
        state: State,
        specs: Mapping[str, MountSpec],
        *,
        wrapped: bool,
        version: str,
        profile: str,
        host_tools: Callable[[], Sequence[ToolEntry]],
        makes_tasks: bool = False,
    ) -> None:
        self._state = state
        self._specs = specs
        self._wrapped = wrapped
        self._version = version
        self._profile = profile
        self._host_tools = host_tools
        self._makes_tasks = makes_tasks
        self._stale = True
        self._tools: dict[str, ToolEntry] = {}
        self._aliases: dict[str, str] = {}
        self._prompts: dict[str, PromptEntry] = {}
        self._addresses = Addresses()
        self._templates: list[tuple[UriTemplate, str]] = []
        self._lists: dict[str, bytes] = {}
        self._tool_list: tuple[frozenset[str], bytes] | None = None
        self._identities: dict[str, bytes] = {}

    @property
    def enabled_groups(self) -> frozenset[str]:
        """The groups of built-in tools that the session lists."""
        session = self._state.session
        return enabled_groups(session.profile or self._profile, session.groups)

    def invalidate(self) -> None:
        self._stale = True

    # --- looking up -----------------------------------------------------------------------------

    def tool(self, name: str) -> ToolEntry | None:
        """Whose tool this is. A name that only its prefix places is routed there, and never replayed."""
        self._refresh()
        entry = self._tools.get(self._aliases.get(name, name))
        if entry is not None:
            return entry
        for spec in self._by_prefix():
            if name.startswith(spec.prefix) and self._is_open(spec):
                inner = name[len(spec.prefix) :]
                if inner and spec.offers(inner) and inner not in self._state.mounts[spec.name].held:
                    return ToolEntry(name, spec.name, inner)
        return None

    def listed_name(self, name: str) -> str:
        """The name by which a tool is listed, also for an alias; empty where no server lists it."""
        self._refresh()
        name = self._aliases.get(name, name)
        return name if name in self._tools else ""

    def _by_prefix(self) -> list[MountSpec]:
        """The longest first: `a__b__x` belongs to the mount `a__b` before it belongs to `a`."""
        return sorted(self._specs.values(), key=lambda spec: -len(spec.prefix))

    def _is_open(self, spec: MountSpec) -> bool:
        """Whether a server may have tools that its catalog does not show: always, if its prefix places them."""
        return bool(spec.prefix) or self._wrapped or self._state.mounts[spec.name].catalog is None

    def tool_names(self) -> Collection[str]:
        self._refresh()
        return self._tools.keys()

    def prompt(self, name: str) -> tuple[str, str] | None:
        self._refresh()
        entry = self._prompts.get(name)
        if entry is not None:
            return entry.mount, entry.name
        for spec in self._by_prefix():
            if (spec.prefix or self._wrapped) and name.startswith(spec.prefix):
                return spec.name, name[len(spec.prefix) :]
        return None

    def resource_owner(self, uri: str) -> str | None:
        """Which server a URI belongs to: listed, matched by a template, of a known scheme, or the only one."""
        self._refresh()
        if uri in self._addresses.owners:
            return self._addresses.owners[uri]
        if len(uri) <= MOST_URI:
            for template, mount in self._templates:
                if template.matches(uri):
                    return mount
        scheme = uri.partition(":")[0]
        owners = {m for u, m in self._addresses.owners.items() if u.partition(":")[0] == scheme}
        if len(owners) == 1:
            return owners.pop()
        able = [
            name
            for name, mount in self._state.mounts.items()
            if mount.catalog is None or has_capability(mount.catalog, "resources")
        ]
        return able[0] if len(able) == 1 else None

    def addresses(self) -> Addresses:
        self._refresh()
        return self._addresses

    # --- listing -----------------------------------------------------------------------------------

    def listing(self, method: str, era: Era) -> bytes:
        self._refresh()
        body = self._lists[method] if method != "tools/list" else self._list_tools()
        return (
            bytes(encode_members({**list_hint(self._state, self._specs, method), **members(body)}))
            if era == "modern"
            else body
        )

    def _list_tools(self) -> bytes:
        """Tools of mounted servers are always listed, a built-in one while its group is enabled."""
        groups = self.enabled_groups
        if self._tool_list is None or self._tool_list[0] != groups:
            listed = [
                tool.definition
                for tool in self._tools.values()
                if not self._is_disabled(tool.mount) and self._group(tool) in (None, *groups)
            ]
            self._tool_list = (groups, _array("tools", listed))
        return self._tool_list[1]

    def _is_disabled(self, mount: str) -> bool:
        named = self._state.mounts.get(mount)
        return named is not None and isinstance(named.phase, Disabled)

    def _group(self, tool: ToolEntry) -> str | None:
        spec = self._specs.get(tool.mount)
        return GROUP_OF.get(tool.name) if spec is None or spec.builtin else None

    def count_tools(self, mount: str) -> int:
        self._refresh()
        return sum(1 for t in self._tools.values() if t.mount == mount)

    def server_info(self) -> bytes:
        only = self._wrapped_catalog()
        if only is not None:
            return only.server_info
        return _encode({"name": "perdure", "title": "Perdure", "version": self._version})

    def identity(self, mount: str = "") -> bytes:
        """Who answers: this server by its name and version, else the host."""
        self._refresh()
        return self._identities.get(mount) or _identity(self.server_info()) or _HOST

    def capabilities(self, era: Era) -> bytes:
        """What the session can do. It is said once, so it promises what any mount may come to offer.

        Tasks are an extension in 2026, and a capability of their own in the revision before.
        """
        only = self._wrapped_catalog()
        if only is not None:
            declared = members(only.capabilities)
            if era == "modern":
                declared.pop("tasks", None)
            if self._makes_tasks:
                extensions = _object(declared.get("extensions", Raw(b"{}")))
                declared["extensions"] = encode_members({eras.TASKS: Raw(b"{}"), **extensions})
            for kind in ("tools", "prompts", "resources"):
                if kind in declared:
                    declared[kind] = encode_members({**_object(declared[kind]), "listChanged": Raw(b"true")})
            return joined(declared)
        promised: dict[str, Any] = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "logging": {},
            "completions": {},
        }
        for kind in ("experimental", "extensions", *(("tasks",) if era == "handshake" else ())):
            merged: Members = {}
            if kind == "extensions" and self._makes_tasks:
                merged[eras.TASKS] = Raw(b"{}")
            for mount in self._state.mounts.values():
                if mount.catalog is not None:
                    declared = members(mount.catalog.capabilities)
                    if kind in declared:
                        merged.update(_object(declared[kind]))
            if merged:
                promised[kind] = merged
        return _encode(promised)

    def declaring(self, method: str) -> list[str]:
        """The servers that declare the extension of a method: `x.example/graphs` has methods like `graphs/query`."""
        suffix = "/" + method.partition("/")[0]
        return [
            name
            for name, mount in self._state.mounts.items()
            if mount.catalog is not None
            and any(
                identifier.endswith(suffix)
                for identifier in _object(members(mount.catalog.capabilities).get("extensions", Raw(b"{}")))
            )
        ]

    def instructions(self) -> str:
        only = self._wrapped_catalog()
        if only is not None:
            return only.instructions
        parts = []
        for name, mount in self._state.mounts.items():
            spec = self._specs[name]
            if spec.builtin:
                parts.append(self._own_instructions(spec))
            elif mount.catalog is not None and mount.catalog.instructions:
                heading = f"Tools named {spec.prefix}…: " if spec.prefix else ""
                parts.append(heading + mount.catalog.instructions)
        return "\n\n".join(parts)

    def _own_instructions(self, worker: MountSpec) -> str:
        enabled = self.enabled_groups
        groups = self.groups()
        listed = [tool for group in groups if group.name in enabled for tool in group.tools]
        return instructions(listed, [group for group in groups if group.name not in enabled], worker.cwd)

    def groups(self) -> list[ToolGroup]:
        """The groups of built-in tools, each with the tools that there are.

        Before the worker's first catalog these are all that it may offer."""
        self._refresh()
        workers = [spec for spec in self._specs.values() if spec.builtin]
        is_unknown = any(self._state.mounts[spec.name].catalog is None for spec in workers)
        offered = []
        for group in GROUPS:
            tools = tuple(
                tool
                for tool in group.tools
                if tool in self._tools or (is_unknown and all(spec.offers(tool) for spec in workers))
            )
            if tools:
                offered.append(ToolGroup(group.name, group.about, tools))
        return offered

    def _wrapped_catalog(self) -> ChildCatalog | None:
        if not self._wrapped:
            return None
        return next(iter(self._state.mounts.values())).catalog or ChildCatalog(
            capabilities=b'{"tools":{}}', server_info=b'{"name":"perdure","version":"0"}'
        )

    # --- building -----------------------------------------------------------------------------------

    def _refresh(self) -> None:
        if not self._stale:
            return
        self._stale = False
        self._tools, self._aliases, self._prompts, self._templates = {}, {}, {}, []
        self._addresses = Addresses()
        resources: list[bytes] = []
        templates: list[bytes] = []
        for entry in self._host_tools():
            self._tools[entry.public] = entry
        self._tool_list = None
        hidden = {name for name in self._state.mounts if self._is_disabled(name)}
        for name, mount in sorted(self._state.mounts.items(), key=lambda item: item[0] in hidden):
            if mount.catalog is None:
                continue
            spec = self._specs[name]
            for raw in mount.catalog.tools:
                self._add_tool(spec, raw)  # also of a disabled mount: a call to it is told so
            if name in hidden:
                continue
            for raw in mount.catalog.prompts:
                self._add_prompt(spec, raw)
            for raw in mount.catalog.resources:
                uri = _text(raw, "uri")
                if uri is not None and self._addresses.add(name, uri) is not None:
                    resources.append(self._readdressed(name, raw))
            for raw in mount.catalog.templates:
                template = _text(raw, "uriTemplate")
                if template is not None:
                    if (parsed := parse_template(template)) is not None:
                        self._templates.append((parsed, name))
                    templates.append(raw)
        catalogs = {name: mount.catalog for name, mount in self._state.mounts.items()}
        self._identities = {name: _identity(c.server_info) for name, c in catalogs.items() if c is not None}
        self._lists = {
            "prompts/list": _array("prompts", [p.definition for p in self._prompts.values()]),
            "resources/list": _array("resources", resources),
            "resources/templates/list": _array("resourceTemplates", templates),
        }

    def _add_tool(self, spec: MountSpec, raw: bytes) -> None:
        try:
            definition_members = members(raw)
            name = _string.decode(definition_members["name"])
        except (ValueError, KeyError, msgspec.MsgspecError):
            return
        if not spec.offers(name) or name in self._state.mounts[spec.name].held:
            return
        public = spec.prefix + name
        if public in self._tools:
            return
        deadline_s = 0.0
        contract = Contract()
        if spec.builtin:
            contract = _take_contract(definition_members)
            replay = _CONTRACTS.get(contract.replay, NEVER)
            deadline_s = contract.deadline_s
        else:
            replay = _annotated(definition_members) if spec.trust_annotations else NEVER
        replay = spec.replay.get(name, replay)
        definition_members["name"] = Raw(_encode(public))
        for page in pages_of(definition_members):
            self._addresses.add(spec.name, page)
        if "_meta" in definition_members:
            definition_members["_meta"] = Raw(
                self._readdressed(spec.name, bytes(definition_members["_meta"]))
            )
        if "inputSchema" not in definition_members:
            definition_members["inputSchema"] = Raw(
                b'{"type":"object"}'
            )  # a 2026 client drops a tool without one
        definition = joined(definition_members) if len(definition_members) else raw
        self._tools[public] = ToolEntry(
            public, spec.name, name, replay, contract.conflict, deadline_s, definition, contract.waits
        )
        for alias in contract.aliases:
            self._aliases[alias] = public
        if spec.managed and spec.prefix != spec.name + SEPARATOR:
            self._aliases[spec.name + SEPARATOR + name] = public  # its prefix leaves out what clients refuse

    def _readdressed(self, mount: str, raw: bytes) -> bytes:
        """A definition with the public addresses."""
        return bytes(with_addresses(raw, lambda uri: self._addresses.public(mount, uri)))

    def _add_prompt(self, spec: MountSpec, raw: bytes) -> None:
        name = _text(raw, "name")
        if name is None or spec.prefix + name in self._prompts:
            return
        definition = joined({**members(raw), "name": Raw(_encode(spec.prefix + name))})
        self._prompts[spec.prefix + name] = PromptEntry(spec.name, name, definition)


def _identity(server_info: bytes) -> bytes:
    """What goes with every result: a server's icons and links do not. Empty where it has no name or version."""
    info = _object(Raw(server_info))
    if not {"name", "version"} <= info.keys():
        return b""
    return joined({key: info[key] for key in ("name", "title", "version") if key in info})


def _object(raw: Raw) -> Members:
    try:
        return members(raw)
    except ValueError:
        return {}


def _take_contract(definition: Members) -> Contract:
    """The worker's contract, taken out of the definition that the client will see."""
    if "_meta" not in definition:
        return Contract()
    try:
        meta = members(definition["_meta"])
        raw = meta.pop(eras.META_CONTRACT, None)
        contract = _contract.decode(raw) if raw is not None else Contract()
    except (ValueError, msgspec.MsgspecError):
        return Contract()
    if meta:
        definition["_meta"] = encode_members(meta)
    else:
        del definition["_meta"]
    return contract


def _annotated(definition: Members) -> ReplayClass:
    if "annotations" not in definition:
        return NEVER
    try:
        hints = _annotations.decode(definition["annotations"])
    except msgspec.MsgspecError:
        return NEVER
    return from_annotations(hints.readOnlyHint is True, hints.idempotentHint is True)


def _text(raw: bytes, key: str) -> str | None:
    try:
        return _string.decode(members(raw)[key])
    except (ValueError, KeyError, msgspec.MsgspecError):
        return None


def _array(key: str, items: list[bytes]) -> bytes:
    return b'{"' + key.encode() + b'":[' + b",".join(items) + b"]}"


class UriTemplate(NamedTuple):
    """The literals of a URI template; any text may stand between two of them, in place of an expression."""

    literals: tuple[str, ...]

    def matches(self, uri: str) -> bool:
        """Each literal is looked for behind the one before it: linear, where a pattern would backtrack."""
        first, *middle = self.literals
        if not middle:
            return uri == first
        last = middle.pop()
        at, end = len(first), len(uri) - len(last)
        if end < at or not uri.startswith(first) or not uri.endswith(last):
            return False
        for literal in middle:
            at = uri.find(literal, at, end)
            if at < 0:
                return False
            at += len(literal)
        return True


def parse_template(template: str) -> UriTemplate | None:
    """None for one that is longer than any server's own: it is listed, and no URI is found by it."""
    if len(template) > MOST_TEMPLATE:
        return None
    head, *rest = template.split("{")
    literals = [head]
    for part in rest:
        _, closed, literal = part.partition("}")
        if closed:
            literals.append(literal)
        else:
            literals[-1] += "{" + part  # never closed: it stands for itself
    return UriTemplate(tuple(literals))


def has_capability(catalog: ChildCatalog, name: str) -> bool:
    return name in members(catalog.capabilities)


def changes(old: ChildCatalog | None, new: ChildCatalog) -> list[str]:
    """Which kinds of list differ between two catalogs, whatever the order of their items."""
    before = old or ChildCatalog()
    kinds = []
    if sorted(before.tools) != sorted(new.tools):
        kinds.append("tools")
    if sorted(before.prompts) != sorted(new.prompts):
        kinds.append("prompts")
    if sorted(before.resources + before.templates) != sorted(new.resources + new.templates):
        kinds.append("resources")
    return kinds


def dump_catalog(catalog: ChildCatalog) -> bytes:
    return msgspec.msgpack.encode(catalog)


def load_catalog(data: bytes) -> ChildCatalog | None:
    """A catalog saved by an earlier run; None where it is not one, for it is only a head start."""
    try:
        catalog = _catalog.decode(data)
        for raw in (catalog.capabilities, catalog.server_info, *catalog.tools, *catalog.prompts):
            members(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return catalog


def tool_hashes(catalog: ChildCatalog) -> dict[str, str]:
    """A hash of what a model and a client are told of each tool."""
    from hashlib import sha256

    digests: dict[str, str] = {}
    for raw in catalog.tools:
        try:
            tool = msgspec.json.decode(raw)
            name = tool["name"]
        except (msgspec.MsgspecError, KeyError, TypeError):
            continue
        if isinstance(name, str):
            content = {key: tool.get(key) for key in _HASHED}
            digests[name] = sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
    return digests
