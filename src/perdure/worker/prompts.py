"""The prompts of the built-in server, which clients offer as slash commands: `undo`, `handoff`, `review-changes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class Prompt(msgspec.Struct, frozen=True):
    """`text` is what the user would type. A `{name}` in it stands for an argument, or for its default."""

    name: str
    title: str
    description: str
    argument: str
    about: str
    default: str
    text: str

    def definition(self) -> dict[str, Any]:
        argument = {"name": self.argument, "description": self.about, "required": False}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "arguments": [argument],
        }

    def messages(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """The result of `prompts/get`."""
        value = arguments.get(self.argument, "").strip() or self.default
        text = self.text.replace("{" + self.argument + "}", value)
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": self.description, "messages": [message]}


PROMPTS: Final = {
    prompt.name: prompt
    for prompt in (
        Prompt(
            name="undo",
            title="Undo changes",
            description="Take back changes to files, after showing which ones.",
            argument="what",
            about="What to take back: a path, a number of changes, a time such as 10m. Default: your last change.",
            default="your last change",
            text="""\
Undo this: {what}.
1. Call undo with dry_run=true and the arguments that select it: n for a number of changes, path for a file, since for a \
time (10m, 2h, today), session="any" if another agent made it. With none of these it selects your own last change.
2. Show me what would be reverted: path, kind of change, who made it. If there are conflicts, explain them and stop.
3. Unless that is clearly what I asked for, ask me first. Then call undo with the same arguments, without dry_run.
4. Tell me what was reverted, and that undo with redo=true brings it back.""",
        ),
        Prompt(
            name="handoff",
            title="Hand the task over",
            description="Leave the task to the next agent: write HANDOFF.md from this conversation.",
            argument="note",
            about="What the next agent must know above all.",
            default="nothing in particular",
            text="""\
Hand this task over to the next agent with handoff_write. The note from me: {note}.
- summary: the goal, what is done, what is not, and decisions with their reasons, so that the next agent need not \
read this conversation.
- next_steps: the remaining work in order, each step small enough to start at once.
- last_good_state: the files you changed that are in a good state.
- open_questions and blockers: what only I can answer, and what stopped you.
Do not put secrets into it. Then show me the summary and the next steps as you wrote them.""",
        ),
        Prompt(
            name="review-changes",
            title="Review changes",
            description="Go through what agents changed: whose changes, what they do, what to keep.",
            argument="since",
            about="How far back: 10m, 2h, today, or a time in ISO 8601. Default: today.",
            default="today",
            text="""\
Review the changes that agents made to this workspace. How far back: {since}.
1. Get the list with journal_tail. If you do not see that tool, call tools with action=enable group=journal first.
2. For each file call diff with from set to the journal_id of the version before the first of these changes (history \
lists the versions).
3. Report per file: who changed it, what the change does, and anything that looks wrong: deleted code, placeholders, \
secrets, changes that were not asked for.
4. End with a list of what you would take back, with the undo or restore call for each. Do not undo anything before I \
say so.""",
        ),
    )
}
