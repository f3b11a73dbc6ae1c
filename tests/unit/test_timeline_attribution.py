"""Which call made a change: every case of the table."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from perdure.storage.timeline import CallRecord, CallStatus
from perdure.workspace.timeline.attribution import (
    LATE_OTHER_US,
    LATE_SHELL_US,
    Author,
    attribute,
)
from perdure.workspace.timeline.named_paths import command_words

NOW = 10_000_000_000


def call(
    identity: int,
    *paths: str,
    ended: int | None = None,
    status: CallStatus = "open",
    command: str | None = "sh",
    txn: str | None = "t",
) -> CallRecord:
    return CallRecord(
        id=identity,
        client="c",
        session="s",
        agent=None,
        turn=None,
        tool="Bash",
        call_id=f"c{identity}",
        command=command,
        paths=paths,
        begun=identity,
        ended=ended,
        status=status,
        txn=txn,
        seq=None,
    )


def test_without_calls_it_was_another_program() -> None:
    assert attribute("f", [], [], NOW) == Author()


def test_one_open_call_made_it_whatever_it_names() -> None:
    one = call(1, "other")
    assert attribute("f", [one], [call(0, "f", ended=NOW, status="done")], NOW) == Author((one,))


@pytest.mark.parametrize("naming", list(chain.from_iterable(combinations(range(3), n) for n in range(4))))
def test_several_open_calls(naming: tuple[int, ...]) -> None:
    calls = [call(number, "dir/f" if number in naming else "dir/g") for number in range(3)]
    found = attribute("dir/f", calls, [], NOW)
    assert found == Author(tuple(calls[number] for number in naming or range(3)))


@pytest.mark.parametrize(
    ("named", "is_named"),
    [("dir", True), ("dir/f", True), ("dir/f/g", False), ("di", False), ("dir/", False), ("f", False)],
)
def test_an_input_names_the_file_or_a_folder_above_it(named: str, is_named: bool) -> None:
    one = call(1, named)
    other = call(2, "elsewhere")
    assert attribute("dir/f", [one, other], [], NOW) == Author((one,) if is_named else (one, other))


def test_a_call_that_names_nothing_shares_what_another_one_names() -> None:
    """It may have made the change. The call that names the path keeps it in its change set, whichever began first."""
    build, edit, elsewhere = call(1), call(2, "f", command=None), call(3, "g")
    assert attribute("f", [build, edit, elsewhere], [], NOW) == Author((edit, build))
    assert attribute("g", [build, edit, elsewhere], [], NOW) == Author((elsewhere, build))
    assert attribute("h", [build, edit, elsewhere], [], NOW) == Author((build, edit, elsewhere))


def test_calls_of_own_tools_are_no_candidates() -> None:
    own = call(1, "f", txn=None)
    other = call(2)
    assert attribute("f", [own], [], NOW) == Author()
    assert attribute("f", [own, other], [], NOW) == Author((other,))


@pytest.mark.parametrize("status", ["done", "unfinished", "late"])
@pytest.mark.parametrize("command", ["sh", None])
@pytest.mark.parametrize("is_in_time", [True, False])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_change_between_calls(
    status: CallStatus, command: str | None, is_in_time: bool, is_named: bool
) -> None:
    limit = LATE_SHELL_US if command else LATE_OTHER_US
    ended = NOW - limit - (0 if is_in_time else 1)
    one = call(1, "f" if is_named else "g", ended=ended, status=status, command=command)
    is_late = status != "late" and is_in_time and is_named
    assert attribute("f", [], [one], NOW) == (Author((one,), is_late=True) if is_late else Author())


def test_after_the_clock_was_set_back_no_change_is_late() -> None:
    one = call(1, "f", ended=NOW + 3_600_000_000, status="done")
    assert attribute("f", [], [one], NOW) == Author()


def test_the_newest_of_several_ended_calls_is_late() -> None:
    old, new = call(1, "f", ended=NOW - 2, status="done"), call(2, "f", ended=NOW - 1, status="done")
    assert attribute("f", [], [new, old], NOW) == Author((new,), is_late=True)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sed -i s/a/b/ src/x.py", ["s/a/b/", "src/x.py"]),
        ("cat <in >out 2>/dev/null", ["in", "out", "2", "/dev/null"]),
        ("rm 'a b' \"c d\"", ["a b", "c d"]),
        ("echo 'a b' src/x.py > \"c d\"", ["c d"]),
        ("printf '%s' src/x.py | tee y; rm z", ["y", "z"]),
        ("cat > a.txt <<'EOF' && rm b\nsee src/x.py\nEOF\nrm c", ["a.txt", "EOF", "b", "c"]),
        ("cat <<-END <<OTHER\n\tsrc/x.py\n\tEND\nsrc/y.py\nOTHER\nrm c", ["OTHER", "c"]),
        ("echo $((1 <<n)); rm a\nrm b", ["n", "a", "b"]),
        ("cat <<< src/x.py\nrm b", ["src/x.py", "b"]),
        ("tool --file=x -v y", ["x", "y"]),
        ("rm src/*.py $HOME/x", ["src"]),
        ("a; b && c | ./d", ["./d"]),
        ("", []),
        ("rm 'unbalanced", ["unbalanced"]),
    ],
)
def test_words_of_a_command_that_may_be_paths(command: str, words: list[str]) -> None:
    assert [word for word, _ in command_words(command, "/w")] == words


def test_words_after_cd_are_relative_to_that_folder() -> None:
    assert list(command_words("cd sub && rm x; cd /y && rm z", "/w")) == [
        ("sub", "/w/sub"),
        ("x", "/w/sub"),
        ("/y", "/y"),
        ("z", "/y"),
    ]
