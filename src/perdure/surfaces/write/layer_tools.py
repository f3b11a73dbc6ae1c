"""The layers around a write as tools: risk, form, chunks, scratchpad, handoff, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from perdure.present.shape import Field, Payload, Shape
from perdure.protocol.tools import ToolSpec
from perdure.surfaces.write import checkpoints, chunks, risk_score, scratch, validate
from perdure.surfaces.write.declarations import reads, writes
from perdure.surfaces.write.handoff import text as handoff_text
from perdure.surfaces.write.handoff import tools as handoff

SHA = Field("sha256", "digest")
SIZE = Field("bytes", "bytes")
SESSION = Field("session")
JOURNAL_ID = Field("journal_id")

CHUNK = Shape(
    "chunk {index} of {session}  {bytes}  sha256 {sha256}",
    (SESSION, Field("index", "count"), Field("chunk_path", full_only=True), SHA, SIZE, JOURNAL_ID),
)
COMPOSED = Shape(
    "composed {output_path}  {chunk_count:chunk}  {bytes}  sha256 {sha256}  journal {journal_id}",
    (
        SESSION,
        Field("output_path"),
        SHA,
        SIZE,
        Field("chunk_count", "count"),
        JOURNAL_ID,
        Field("cleaned_up", quiet=True),
        Field("warnings", "items"),
        Field("chunk_hashes", "items", full_only=True),
    ),
)
RESET = Shape(
    lambda payload: (
        "reset {session}  {removed:chunk} dropped"
        if payload["existed"]
        else "{session}  there was no such session"
    ),
    (SESSION, Field("removed", "count", quiet=True), Field("existed", quiet=True)),
)


def _status(payload: Payload) -> str:
    if "sessions" in payload:
        return "{sessions:session}"
    if not payload["exists"]:
        return "{session}  no such session"
    count = "{chunks:chunk}" if payload["total_expected"] is None else "{chunks:chunk} of {total_expected}"
    return f"{{session}}  {count}  {{bytes}}" + ("" if payload["missing_indices"] else "  none missing")


STATUS = Shape(
    _status,
    (
        SESSION,
        Field("exists", quiet=True),
        Field("total_expected", "count", quiet=True),
        Field("missing_indices", "items"),
        Field("resume_at", "count"),
        SIZE,
        Field("expires_at", "time"),
        Field("present_indices", "items", full_only=True),
        Field("chunk_dir", full_only=True),
        Field("chunks", "table", full_only=True, columns=(Field("index", "count"), SHA, SIZE)),
        Field(
            "sessions",
            "table",
            columns=(SESSION, Field("chunks", "count"), SIZE, Field("client"), Field("updated_at", "time")),
        ),
    ),
)
PREVIEW = Shape(
    lambda payload: (
        "preview of {session}  {chunk_count:chunk}  {total_bytes}"
        + ("  cut: only its beginning is shown" if payload["truncated"] else "")
    ),
    (
        SESSION,
        Field("chunk_count", "count"),
        Field("total_bytes", "bytes"),
        Field("truncated", quiet=True),
        Field("preview", full_only=True),
        Field("chunk_hashes", "items", full_only=True),
        Field("content", "block"),
    ),
)
KEPT = Shape(
    lambda payload: (
        "kept {sha256}  {bytes}"
        + ("  it was kept already" if payload["deduped"] else "")
        + ("  until {expires_at}" if payload["expires_at"] else "")
    ),
    (
        SHA,
        SIZE,
        Field("deduped", quiet=True),
        Field("sealed", full_only=True),
        Field("expires_at", "time"),
        Field("warnings", "items"),
        Field("scratch_path", full_only=True),
        Field("journal_id", full_only=True),
    ),
)
_ENTRY = (
    SHA,
    Field("label"),
    SIZE,
    Field("content_type"),
    Field("notes"),
    Field("encoding", full_only=True),
    Field("created_at", "time"),
    Field("expires_at", "time", full_only=True),
)
REFERENCE = Shape(
    lambda payload: (
        "{entries:entry/entries}"
        if "entries" in payload
        else "{entry.sha256}  {entry.bytes}  label {entry.label}  type {entry.content_type}  kept {entry.created_at}  "
        "notes: {entry.notes}"
    ),
    (
        Field("entry", "record", columns=_ENTRY, quiet=True),
        Field("alias_count", "count", quiet=True),
        Field("bin_exists", full_only=True),
        Field("scratch_path", full_only=True),
        Field("entries", "table", columns=_ENTRY),
    ),
)
GOT = Shape(
    "{sha256}  {bytes}  {encoding}  label {label}  type {content_type}",
    (
        SHA,
        SIZE,
        Field("encoding"),
        Field("label"),
        Field("content_type"),
        Field("content", "block"),
    ),
)
DROPPED = Shape(
    lambda payload: "dropped {sha256}" if payload["dropped"] else "{sha256} was dropped already",
    (SHA, Field("dropped", quiet=True)),
)
_CHECKPOINT = (
    Field("name"),
    SIZE,
    Field("format"),
    Field("ttl"),
    SHA,
    Field("created_at", "time", full_only=True),
    Field("updated_at", "time"),
    Field("expires_at", "time"),
    Field("checkpoint_path", full_only=True),
)


def _saved(payload: Payload) -> str:
    verb = "replaced checkpoint" if payload["overwritten"] else "saved checkpoint"
    until = (
        "permanent" if payload["expires_at"] is None else "kept until {expires_at}, also after this session"
    )
    return f"{verb} {{name}}  {{bytes}}  {until}"


CHECKPOINT = Shape(
    _saved,
    (
        *(Field(f.name, f.kind, f.full_only, quiet=True) for f in _CHECKPOINT),
        Field("overwritten", quiet=True),
        Field("journal_id", full_only=True),
        Field("chunked", full_only=True),
    ),
)
CHECKPOINT_READ = Shape(
    "checkpoint {name}  {bytes}  saved {updated_at}  until {expires_at}",
    (*(Field(f.name, f.kind, f.full_only, quiet=True) for f in _CHECKPOINT), Field("data", "json")),
)
CHECKPOINTS = Shape(
    "{checkpoints:checkpoint}",
    (Field("count", "count", quiet=True), Field("checkpoints", "table", columns=_CHECKPOINT)),
)
CLEANED = Shape(
    "removed {removed:checkpoint}  kept {kept}",
    (
        Field("removed", "table", columns=(Field("name"), Field("ttl"), Field("reason"))),
        Field("kept", "count"),
    ),
)

_DRIFT = (
    Field("path"),
    Field("reason"),
    Field("expected_sha256", "digest", full_only=True),
    Field("actual_sha256", "digest"),
)
_HANDOFF = (
    Field("handoff_path"),
    SHA,
    Field("drift_warnings", "table", columns=_DRIFT, words=handoff_text.drift_words),
    Field("ready_steps", "items"),
    Field("checkpoint_refs", "table", full_only=True, columns=(Field("name"), SHA, SIZE)),
)
HANDED = Shape(
    "handoff {handoff_path}  {bytes}  sha256 {sha256}  journal {journal_id}",
    (*_HANDOFF, SIZE, JOURNAL_ID, Field("warnings", "items")),
)
HANDOFF = Shape(
    "handoff {handoff_path}  task {envelope.task_id}  {envelope.status}  by {envelope.agent}  "
    "{envelope.updated_at}  sha256 {sha256}",
    (
        *_HANDOFF,
        Field("envelope", "json", words=handoff_text.envelope_words),
        Field("body", "block"),
    ),
)

SCORED = Shape(
    lambda payload: (
        "{verdict}  score {score} of 1  {detected_patterns:place}  {bytes}  safe_write "
        + (
            "would write it"
            if payload["accepted"]
            else "would refuse it; redact=true gives a copy it accepts"
        )
    ),
    (
        Field("score"),
        Field("verdict"),
        Field("accepted", quiet=True),
        SIZE,
        Field("line_count", "count", full_only=True),
        Field("max_line_len", "count", full_only=True),
        Field(
            "detected_patterns",
            "table",
            columns=(
                Field("kind"),
                Field("pattern"),
                Field("match"),
                Field("line", "count"),
                Field("column", "count"),
            ),
        ),
        Field("suggested_actions", "json"),
        Field("language_hint", full_only=True),
        Field("target_path", full_only=True),
        Field("redacted", "block"),
    ),
)
VALIDATED = Shape(
    "{summary}",
    (
        Field("valid", quiet=True),
        Field("format", quiet=True),
        Field("level", quiet=True),
        Field("summary"),
        Field(
            "errors",
            "table",
            columns=(Field("line", "count"), Field("col", "count"), Field("severity"), Field("message")),
        ),
    ),
)

Run = Callable[..., dict[str, Any]]
LAYERS: Final[tuple[tuple[ToolSpec, Shape, Run], ...]] = (
    (
        reads(
            "risk_score",
            "Check for secrets",
            "Check text for secrets and personal data before you write it; nothing is written. redact=true also "
            "returns a clean copy.",
            risk_score.RiskScore,
        ),
        SCORED,
        risk_score.risk_score,
    ),
    (
        reads(
            "validate",
            "Check syntax",
            "Check the syntax of text; nothing is written. level: exact (JSON, YAML, TOML, XML, Python, LaTeX), grammar "
            "(code, CSS, HTML, SQL; valid is null where it objects) or none.",
            validate.ValidateParams,
        ),
        VALIDATED,
        validate.validate,
    ),
    (
        writes(
            "chunk_write",
            "Store a chunk",
            "Store chunk number index of a file too large for one call; the same index again replaces it. "
            "Nothing is in the project until chunk_compose. To add parts in order, use chunk_append.",
            chunks.ChunkWrite,
            conflict=("/session",),
            destructive=True,
            idempotent=True,
        ),
        CHUNK,
        chunks.chunk_write,
    ),
    (
        writes(
            "chunk_append",
            "Append a chunk",
            "Store the next chunk of a file too large for one call, numbered for you. When all are stored, "
            "chunk_compose writes the file.",
            chunks.ChunkAppend,
            conflict=("/session",),
        ),
        CHUNK,
        chunks.chunk_write,
    ),
    (
        writes(
            "chunk_compose",
            "Compose file",
            "Join all chunks of a session and write the file in one step. Names missing chunks and writes "
            "nothing then.",
            chunks.ChunkCompose,
            conflict=("/session", "/output_path"),
            destructive=True,
        ),
        COMPOSED,
        chunks.chunk_compose,
    ),
    (
        writes(
            "chunk_reset",
            "Delete chunks",
            "Delete all chunks of a session, to start again. Files already composed stay.",
            chunks.ChunkReset,
            conflict=("/session",),
            destructive=True,
            idempotent=True,
        ),
        RESET,
        chunks.chunk_reset,
    ),
    (
        reads(
            "chunk_status",
            "Chunk status",
            "Which chunks of a session are stored and which are missing. Without session: all sessions.",
            chunks.ChunkStatus,
        ),
        STATUS,
        chunks.chunk_status,
    ),
    (
        reads(
            "chunk_preview",
            "Preview chunks",
            "Show the file that chunk_compose would write; nothing is written.",
            chunks.ChunkPreview,
        ),
        PREVIEW,
        chunks.chunk_preview,
    ),
    (
        writes(
            "scratch_put",
            "Store outside the project",
            "Store text outside the project (secrets, raw logs); returns a hash to cite. For your progress use "
            "checkpoint, for values other agents need set_state.",
            scratch.ScratchPut,
            conflict=(),
            idempotent=True,
        ),
        KEPT,
        scratch.scratch_put,
    ),
    (
        reads(
            "scratch_ref",
            "List scratch entries",
            "List stored scratch entries, or one by sha256 or label, without their content.",
            scratch.ScratchRef,
        ),
        REFERENCE,
        scratch.scratch_ref,
    ),
    (
        reads(
            "scratch_get",
            "Read scratch entry",
            "Read the content of a scratch entry, by sha256 or label.",
            scratch.ScratchGet,
        ),
        GOT,
        scratch.scratch_get,
    ),
    (
        writes(
            "scratch_drop",
            "Delete scratch entry",
            "Delete a scratch entry for good, by sha256 or label.",
            scratch.ScratchRef,
            conflict=("/sha256", "/label"),
            destructive=True,
            idempotent=True,
        ),
        DROPPED,
        scratch.scratch_drop,
    ),
    (
        writes(
            "handoff_write",
            "Write handoff",
            "Write HANDOFF.md for the next agent: status, summary, next steps, files. For yourself use checkpoint.",
            handoff.HandoffWrite,
            conflict=("/path",),
            destructive=True,
        ),
        HANDED,
        handoff.handoff_write,
    ),
    (
        reads(
            "handoff_read",
            "Read handoff",
            "Read the handoff of the last agent, and which of its files changed since. Call it first when you "
            "take over a task.",
            handoff.HandoffRead,
        ),
        HANDOFF,
        handoff.handoff_read,
    ),
    (
        writes(
            "checkpoint",
            "Save progress",
            "Save your own progress as JSON, to read after a crash. For another agent use handoff_write; for "
            "shared values set_state.",
            checkpoints.Checkpoint,
            conflict=("/name",),
            destructive=True,
            idempotent=True,
        ),
        CHECKPOINT,
        checkpoints.checkpoint,
    ),
    (
        reads(
            "checkpoint_read",
            "Read progress",
            "Read the data of one checkpoint, by its name.",
            checkpoints.CheckpointRead,
        ),
        CHECKPOINT_READ,
        checkpoints.checkpoint_read,
    ),
    (
        reads(
            "checkpoint_list",
            "List checkpoints",
            "List checkpoints that have not expired: name, size, time, without their data.",
            checkpoints.CheckpointList,
        ),
        CHECKPOINTS,
        checkpoints.checkpoint_list,
    ),
    (
        writes(
            "checkpoint_cleanup",
            "Delete checkpoints",
            "Delete this session's and expired checkpoints.",
            checkpoints.CheckpointCleanup,
            conflict=(),
            destructive=True,
            idempotent=True,
        ),
        CLEANED,
        checkpoints.checkpoint_cleanup,
    ),
)
