"""The layers around a write as tools: risk, form, chunks, scratchpad, handoff, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from perdure.model.tools import ToolSpec
from perdure.present.shape import Field, Payload, Shape
from perdure.surfaces.write import checkpoints, chunking, handing, scoring, scratching, validating
from perdure.surfaces.write.declaring import reads, writes

SHA = Field("sha256", "digest")
SIZE = Field("bytes", "bytes")
SESSION = Field("session")
JOURNAL_ID = Field("journal_id")

CHUNK = Shape(
    "chunk {index} of {session}  {bytes}  sha256 {sha256}",
    (SESSION, Field("index", "count"), Field("chunk_path", full_only=True), SHA, SIZE, JOURNAL_ID),
)
COMPOSED = Shape(
    "composed {output_path}  {chunk_count} chunks  {bytes}  sha256 {sha256}  journal {journal_id}",
    (
        SESSION,
        Field("output_path"),
        SHA,
        SIZE,
        Field("chunk_count", "count"),
        JOURNAL_ID,
        Field("cleaned_up"),
        Field("warnings", "items"),
        Field("chunk_hashes", "items", full_only=True),
    ),
)
RESET = Shape("reset {session}  {removed} chunks", (SESSION, Field("removed", "count"), Field("existed")))


def _status(payload: Payload) -> str:
    if "sessions" in payload:
        return "{sessions} sessions"
    return "{session}  {chunks} chunks  {bytes}" if payload["exists"] else "{session}  no such session"


STATUS = Shape(
    _status,
    (
        SESSION,
        Field("exists"),
        Field("total_expected", "count"),
        Field("missing_indices", "items"),
        Field("resume_at", "count"),
        SIZE,
        Field("expires_at"),
        Field("present_indices", "items", full_only=True),
        Field("chunk_dir", full_only=True),
        Field("chunks", "table", full_only=True, columns=(Field("index", "count"), SHA, SIZE)),
        Field(
            "sessions",
            "table",
            columns=(SESSION, Field("chunks", "count"), SIZE, Field("client"), Field("updated_at")),
        ),
    ),
)
PREVIEW = Shape(
    "preview of {session}  {chunk_count} chunks  {total_bytes}",
    (
        SESSION,
        Field("chunk_count", "count"),
        Field("total_bytes", "bytes"),
        Field("truncated"),
        Field("preview", full_only=True),
        Field("chunk_hashes", "items", full_only=True),
        Field("content", "block"),
    ),
)
KEPT = Shape(
    "kept {sha256}  {bytes}",
    (
        Field("sha256"),
        SIZE,
        Field("deduped"),
        Field("sealed", full_only=True),
        Field("expires_at"),
        Field("warnings", "items"),
        Field("scratch_path", full_only=True),
        Field("journal_id", full_only=True),
    ),
)
_ENTRY = (
    Field("sha256"),
    Field("label"),
    SIZE,
    Field("content_type"),
    Field("notes"),
    Field("encoding", full_only=True),
    Field("created_at"),
    Field("expires_at", full_only=True),
)
REFERENCE = Shape(
    lambda payload: "{entries} entries" if "entries" in payload else "{entry.sha256}  {entry.bytes}",
    (
        Field("entry", "record", columns=_ENTRY),
        Field("alias_count", "count"),
        Field("bin_exists", full_only=True),
        Field("scratch_path", full_only=True),
        Field("entries", "table", columns=_ENTRY),
    ),
)
GOT = Shape(
    "{sha256}  {bytes}  {encoding}",
    (
        Field("sha256"),
        SIZE,
        Field("encoding"),
        Field("label"),
        Field("content_type"),
        Field("content", "block"),
    ),
)
DROPPED = Shape("dropped {sha256}", (Field("sha256"), Field("dropped")))
_CHECKPOINT = (
    Field("name"),
    SIZE,
    Field("format"),
    Field("ttl"),
    SHA,
    Field("created_at", full_only=True),
    Field("updated_at"),
    Field("expires_at"),
    Field("checkpoint_path", full_only=True),
)
CHECKPOINT = Shape(
    "checkpoint {name}  {bytes}  until {expires_at}",
    (
        *_CHECKPOINT,
        Field("overwritten"),
        Field("journal_id", full_only=True),
        Field("chunked", full_only=True),
    ),
)
CHECKPOINT_READ = Shape("checkpoint {name}  {bytes}", (*_CHECKPOINT, Field("data", "json")))
CHECKPOINTS = Shape(
    "{count} checkpoints", (Field("count", "count"), Field("checkpoints", "table", columns=_CHECKPOINT))
)
CLEANED = Shape(
    "removed {removed}  kept {kept}",
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
    Field("drift_warnings", "table", columns=_DRIFT),
    Field("ready_steps", "items"),
    Field("checkpoint_refs", "table", full_only=True, columns=(Field("name"), SHA, SIZE)),
)
HANDED = Shape(
    "handoff {handoff_path}  {bytes}  {drift_warnings} drifted  journal {journal_id}",
    (*_HANDOFF, SIZE, JOURNAL_ID, Field("warnings", "items")),
)
HANDOFF = Shape(
    "handoff {handoff_path}  {drift_warnings} drifted  ready {ready_steps}",
    (*_HANDOFF, Field("envelope", "json"), Field("body", "block")),
)

SCORED = Shape(
    "{verdict}  score {score}  {detected_patterns} places  {bytes}",
    (
        Field("score"),
        Field("verdict"),
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
        Field("valid"),
        Field("format"),
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
            "Secrets and other things that would get a content rejected, with their places.",
            scoring.RiskScore,
        ),
        SCORED,
        scoring.risk_score,
    ),
    (
        reads(
            "validate",
            "Syntax errors of a content, with line and column, in 18 formats. "
            "valid is null if a grammar only doubts it, or for an unknown format.",
            validating.ValidateParams,
        ),
        VALIDATED,
        validating.validate,
    ),
    (
        writes(
            "chunk_write",
            "Keep one piece of a file that is too large for one call. Nothing is in the tree until chunk_compose.",
            chunking.ChunkWrite,
            conflict=("/session",),
        ),
        CHUNK,
        chunking.chunk_write,
    ),
    (
        writes(
            "chunk_append",
            "Keep the next piece, as chunk_write does.",
            chunking.ChunkAppend,
            conflict=("/session",),
        ),
        CHUNK,
        chunking.chunk_write,
    ),
    (
        writes(
            "chunk_compose",
            "Write the file made of all chunks in one step. Missing chunks are named.",
            chunking.ChunkCompose,
            conflict=("/session", "/output_path"),
        ),
        COMPOSED,
        chunking.chunk_compose,
    ),
    (
        writes(
            "chunk_reset",
            "Drop a session and all its chunks.",
            chunking.ChunkReset,
            conflict=("/session",),
            destructive=True,
        ),
        RESET,
        chunking.chunk_reset,
    ),
    (
        reads(
            "chunk_status",
            "Which chunks are there and which are missing.",
            chunking.ChunkStatus,
        ),
        STATUS,
        chunking.chunk_status,
    ),
    (
        reads("chunk_preview", "The file as chunk_compose would write it.", chunking.ChunkPreview),
        PREVIEW,
        chunking.chunk_preview,
    ),
    (
        writes(
            "scratch_put",
            "Keep material that must not be in the tree (raw evidence, secrets); its hash refers to it.",
            scratching.ScratchPut,
            conflict=(),
        ),
        KEPT,
        scratching.scratch_put,
    ),
    (
        reads(
            "scratch_ref",
            "About one scratch entry, or all; never their content.",
            scratching.ScratchRef,
        ),
        REFERENCE,
        scratching.scratch_ref,
    ),
    (
        reads("scratch_get", "The content of a scratch entry.", scratching.ScratchGet),
        GOT,
        scratching.scratch_get,
    ),
    (
        writes(
            "scratch_drop",
            "Forget a scratch entry.",
            scratching.ScratchRef,
            conflict=("/sha256", "/label"),
            destructive=True,
        ),
        DROPPED,
        scratching.scratch_drop,
    ),
    (
        writes(
            "handoff_write",
            "Leave a task so that another agent can go on: an envelope and free text. Listed files that differ are named.",
            handing.HandoffWrite,
            conflict=("/path",),
        ),
        HANDED,
        handing.handoff_write,
    ),
    (
        reads("handoff_read", "A handoff, and what has changed since.", handing.HandoffRead),
        HANDOFF,
        handing.handoff_read,
    ),
    (
        writes(
            "checkpoint",
            "Keep data of the task under a name, to go on from after an interruption.",
            checkpoints.Checkpoint,
            conflict=("/name",),
        ),
        CHECKPOINT,
        checkpoints.checkpoint,
    ),
    (
        reads("checkpoint_read", "The data of a checkpoint.", checkpoints.CheckpointRead),
        CHECKPOINT_READ,
        checkpoints.checkpoint_read,
    ),
    (
        reads("checkpoint_list", "Checkpoints that have not ended.", checkpoints.CheckpointList),
        CHECKPOINTS,
        checkpoints.checkpoint_list,
    ),
    (
        writes(
            "checkpoint_cleanup",
            "Drop what was only for this session, and what has ended.",
            checkpoints.CheckpointCleanup,
            conflict=(),
            destructive=True,
        ),
        CLEANED,
        checkpoints.checkpoint_cleanup,
    ),
)
