"""The three documents of the state surface: recipes that hold when several agents follow them at once."""

from __future__ import annotations

from typing import Final

from perdure.surfaces.port import Resource

USAGE: Final = """# Shared state

A value is JSON under a key; send it as it is, or as its text. Every change gives the key its next version and the
store its next revision; neither is ever used again, also not after a delete.

## Change what others may change as well
1. `get_state key` gives value and version.
2. Make the new value.
3. `set_state key value expected_version=VERSION`. `ok`: it is written. `conflict`: another agent was faster; the
   answer has the current value and version, so go on at 2.

A counter, a list or a few members need no loop: `state_patch` with `increment`, `append` or `merge`.
Create only: `expected_version=0`. Several keys together: `state_txn`.

## Only you write the key
`force_set_state`. It replaces whatever is there: never use it on a key that others write.

## Wait instead of asking again
`state_wait key after=REVISION` returns when the key changes after that revision, or at `timeout_s`. Pass the
`revision` of each answer as `after` of the next call, and no change is missed in between.

## Look back
`state_history key` says who changed it, when and with which tool. `get_state at_revision=R` reads an old value;
`state_patch op=revert value=VERSION` brings one back, as a new version.

Keys go away by themselves with `ttl_s`. A value has at most 1 MiB; long texts belong in files.
"""

COORDINATION: Final = """# Several agents

## Claim a task, so that exactly one has it
`set_state task:7 '{"owner":"a"}' expected_version=0`. `ok`: it is yours. `conflict`: another agent has it.
An agent that dies keeps its claim. Use a lease where that matters.

## A lock that survives its holder
1. `lease acquire name=deploy ttl_s=60` gives a `token`. `held`: another agent has it until `expires_at`.
2. Write with `set_state … lease=deploy lease_token=TOKEN`, or in `state_txn` compare
   `{"key":"deploy","lease_token":TOKEN}`.
3. `lease renew token=TOKEN` well before the end; `lost` means stop. `lease release token=TOKEN` when done.

The token is what makes it safe: a holder that was paused and wakes after its time is refused (`stale_token`),
since a later holder has a later token. A lock without a token on every write is a wish.

## Run a cron job once per occurrence
1. `once begin key=report:2026-11-16 ttl_s=3600`. `run`: do it, with the `token`. `running` or `done`: do nothing.
2. `once finish key=… token=TOKEN outcome='"sent"'`. `lost`: its `ttl_s` passed, and another run may have
   begun.

## Move something from one list to another
`state_txn` with the versions of both keys in `compare` and both writes in `then`: both happen, or neither.

## Hand over
The writer sets a key; the reader waits with `state_wait`. Do not read in a loop.
"""

KEYS: Final = """# Names

- Parts from the general to the particular, with colons: `project:site:plan`, `task:42`, `cron:report:2026-11-16`.
- `list_state prefix=task:` lists literally. `pattern` is LIKE: `%` any text, `_` one character, `\\\\` before either
  to mean itself; upper and lower case differ.
- A key has 1 to 512 bytes. `namespace` keeps projects apart, each with its own quota.
- One key per thing that changes by itself: two agents that change different keys never conflict.
- Facts to remember and long texts belong elsewhere: here is what is true now, and who may change it.
"""


def _guide(name: str, description: str, text: str) -> Resource:
    return Resource(f"checkpoint://docs/{name}", name, description, lambda: text, "text/markdown")


GUIDES: Final = (
    _guide("usage", "Reading, guarded writing, waiting.", USAGE),
    _guide("coordination", "Claims, leases, once per occurrence.", COORDINATION),
    _guide("keys", "How to name keys.", KEYS),
)
