"""What the built-in server tells a model about itself: when to use what, and what its arguments have in common.

The host says it too while the worker has not started yet, so it is kept where both can read it.
"""

from __future__ import annotations

from typing import Final

INSTRUCTIONS: Final = """\
Write files with safe_write (whole), edit (passages) or transaction (many files, all or none); read gives content and \
sha256. Every change is journaled: history, diff, undo, restore.
Too large for one call: chunk_append pieces, then chunk_compose; chunk_status says what is missing. Must not be in the \
tree (secrets, raw evidence): scratch_put. Unsure whether a content is safe or well-formed: risk_score, validate. \
Interrupted work: checkpoint for data, handoff_write for the next agent, handoff_read to take over.
Shared between agents: get_state, and set_state with the version that was read; state_txn for several keys at once, \
state_wait instead of asking again, lease for exclusive work (its token guards writes), once for a job that runs once.
Common arguments: expected_prev_sha256, the hash the file must have now (empty: no file), else the write is refused; \
draft, the id of a kept payload instead of content; validate, warn or refuse what breaks the syntax; classify, false \
writes in spite of secrets; force, in spite of guards; idempotency_key, done once however often it is sent; \
render (porcelain, json) and detail (concise, full), how the result looks.
A failed call says in its first line what did not happen and why, and in the line after next: the call to make then \
(key:=JSON for other types than text; ... is for you to fill in). A payload that was refused is kept: give its id as \
draft, never send the content again. retry_budget 0: do something else."""
