"""Shell operations of coding agents, and the workspace in which they run."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Final

import msgspec

GIT: Final = ("git", "-c", "user.name=corpus", "-c", "user.email=corpus@localhost")
_ENVIRON: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


class Operation(msgspec.Struct, frozen=True):
    """One command line. `needs` are programs that must be there. `not_covered` are paths that the record must name as
    left out: the command changed something there that an undo cannot bring back."""

    name: str
    command: str
    needs: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    changes_nothing: bool = False
    lost: tuple[str, ...] = ()
    """Paths without cover that the command removed: the change names them."""
    conflict: str = ""
    """Why the engine refuses to take it back."""
    is_background: bool = False
    """It leaves a process behind that writes when the file `go` appears beside the workspace, and then makes `gone`."""


def environ() -> dict[str, str]:
    author = {
        "GIT_AUTHOR_NAME": "corpus",
        "GIT_AUTHOR_EMAIL": "corpus@localhost",
        "GIT_COMMITTER_NAME": "corpus",
        "GIT_COMMITTER_EMAIL": "corpus@localhost",
        "GIT_EDITOR": "true",
    }
    return {**os.environ, **_ENVIRON, **author}


def make_workspace(root: Path) -> None:
    """A small project with a git history: a branch, a tag, something ignored, links, modes, odd names."""
    generator = random.Random(24)
    texts = {
        "README.md": "# Shop\n\nA small project.\n",
        "src/app.py": "".join(f"line_{number} = {number}\n" for number in range(30)),
        "src/util.py": "def double(x):\n    return 2 * x\n",
        "src/data.json": '{"a": 1, "b": [1, 2, 3]}\n',
        "src/pkg/__init__.py": "",
        "src/pkg/mod.py": "VALUE = 1\n",
        "docs/guide.md": "Guide\n=====\n\nFirst words.\n",
        "notes/other.txt": "other\n",
        "name with space.txt": "space\n",
        "na\u00efve-\u00fcn\u00efcode.txt": "unicode\n",
        "crlf.txt": "one\r\ntwo\r\n",
        ".gitignore": ".env\nbuild/\n*.log\n",
    }
    for path, text in texts.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    (root / "bin").mkdir()
    (root / "bin" / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (root / "bin" / "tool.sh").chmod(0o755)
    (root / "assets").mkdir()
    (root / "assets" / "logo.bin").write_bytes(generator.randbytes(5_000))
    (root / "big.dat").write_bytes(generator.randbytes(300_000))
    (root / "link").symlink_to("src/app.py")
    (root / "folder-link").symlink_to("src")
    (root / "dangling").symlink_to("nowhere")
    for command in (
        "init -q -b main",
        "add -A",
        "commit -qm first",
        "tag v1",
        "switch -qc feature",
    ):
        git(root, *command.split())
    (root / "src" / "feature.py").write_text("FEATURE = True\n")
    (root / "src" / "util.py").write_text("def double(x):\n    return x + x\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "feature")
    git(root, "switch", "-q", "main")
    (root / "docs" / "guide.md").write_text("Guide\n=====\n\nFirst words.\n\nSecond words.\n")
    git(root, "commit", "-qam", "second")
    (root / ".env").write_text("MODE=test\n")
    (root / "docs" / "empty").mkdir()
    (root / "untracked.txt").write_text("not in git\n")


def git(root: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=root, env=environ(), check=True, capture_output=True)


_PATCH: Final = """\
--- a/src/util.py
+++ b/src/util.py
@@ -1,2 +1,2 @@
 def double(x):
-    return 2 * x
+    return x * 2
"""

OPERATIONS: Final = (
    # Edits in place
    Operation("sed -i", "sed -i 's/line_3 = 3/line_3 = 33/' src/app.py"),
    Operation("sed -i with a backup", "sed -i.bak 's/2/3/' src/util.py"),
    Operation("sed -i on many files", "sed -i '1s/^/# head\\n/' src/*.py"),
    Operation("perl -pi", "perl -pi -e 's/VALUE/value/' src/pkg/mod.py", needs=("perl",)),
    Operation("awk into a new file and move", "awk '{print NR, $0}' src/app.py > t && mv t src/app.py"),
    Operation("ed script", "printf '1d\\nw\\nq\\n' | ed -s src/app.py", needs=("ed",)),
    Operation("python rewrites a file", "python3 -c \"open('src/util.py','w').write('new')\""),
    Operation("append", "echo more >> README.md"),
    Operation("tee", "echo replaced | tee src/data.json notes/other.txt > /dev/null"),
    Operation("truncate to nothing", ": > src/app.py"),
    Operation("truncate to a size", "truncate -s 10 src/app.py"),
    Operation("truncate longer", "truncate -s 100000 src/util.py"),
    Operation("dd into the middle", "printf XYZ | dd of=big.dat bs=1 seek=1000 conv=notrunc status=none"),
    Operation("same size, new content", "printf 'VALUE = 2\\n' > src/pkg/mod.py"),
    Operation("line endings", "sed -i 's/\\r$//' crlf.txt"),
    Operation("sort in place", "sort -o src/app.py src/app.py"),
    # New files
    Operation("redirection", "echo hello > new.txt"),
    Operation("heredoc", "cat > src/new.py <<'EOF'\nA = 1\nB = 2\nEOF"),
    Operation("touch", "touch created.txt"),
    Operation("several in new folders", "mkdir -p a/b/c && echo 1 > a/b/c/one && echo 2 > a/two"),
    Operation("an empty folder", "mkdir empty-new"),
    Operation("nested empty folders", "mkdir -p e1/e2/e3"),
    Operation("a large file", "head -c 3000000 /dev/zero | tr '\\0' 'x' > large.txt"),
    Operation("a binary file", "head -c 4096 /dev/urandom > assets/new.bin"),
    Operation("a name with spaces", "echo x > 'two  words.txt'"),
    Operation("a name with a newline", "printf x > 'new\nline.txt'"),
    Operation("a name with quotes", 'printf x > "it\'s \\"quoted\\".txt"'),
    Operation("a unicode name", "printf x > \u65e5\u672c\u8a9e.txt"),
    Operation("a leading dash", "printf x > ./-dash.txt"),
    Operation("a hidden file", "printf x > .hidden"),
    Operation(
        "a name that is not UTF-8",
        "printf x > \"$(printf 'latin-\\351')\"; echo x >> README.md",
        not_covered=("latin-\\udce9",),
    ),
    Operation("a deep path", "mkdir -p $(seq -s/ 1 40) && echo x > $(seq -s/ 1 40)/file"),
    Operation("200 files", 'mkdir many && for i in $(seq 200); do echo "$i" > many/$i; done'),
    # Moves and copies
    Operation("mv a file", "mv src/util.py src/tools.py"),
    Operation("mv a file over another", "mv src/util.py src/pkg/mod.py"),
    Operation("mv a folder", "mv src lib"),
    Operation("mv a folder into another", "mv docs src/"),
    Operation("swap two files", "mv README.md t && mv crlf.txt README.md && mv t crlf.txt"),
    Operation("rename by case", "mv README.md readme.md"),
    Operation("cp", "cp src/app.py src/copy.py"),
    Operation("cp -r", "cp -r src src2"),
    Operation("cp -a with links", "cp -a . ../copy-of-all && rm -rf ../copy-of-all", changes_nothing=True),
    Operation("cp over a file", "cp README.md src/util.py"),
    Operation("install with a mode", "install -m 700 src/util.py bin/util"),
    # Removals
    Operation("rm", "rm src/util.py"),
    Operation("rm several", "rm README.md crlf.txt 'name with space.txt'"),
    Operation("rm -rf a folder", "rm -rf src"),
    Operation("rm -rf with glob", "rm -rf src/* docs/*"),
    Operation("rm -rf everything but git", "rm -rf -- * .env .gitignore"),
    Operation("rmdir", "rmdir docs/empty"),
    Operation("find -delete", "find . -name '*.py' -not -path './.git/*' -delete"),
    Operation("find -exec", "find src -name '*.py' -exec sed -i 's/=/ = /' {} +"),
    Operation("unlink", "unlink notes/other.txt"),
    Operation("rm the ignored .env", "rm .env"),
    Operation("overwrite the ignored .env", "echo MODE=live > .env"),
    Operation("remove and make again", "rm src/util.py && echo new > src/util.py"),
    Operation("a file becomes a folder", "rm README.md && mkdir README.md && echo x > README.md/x"),
    Operation("a folder becomes a file", "rm -rf docs && echo x > docs"),
    # Modes
    Operation("chmod +x", "chmod +x src/app.py"),
    Operation("chmod -x", "chmod -x bin/tool.sh"),
    Operation("chmod -R", "chmod -R go-rwx src"),
    Operation("chmod a folder", "chmod 700 docs"),
    Operation("chmod to read-only and change", "echo x >> README.md && chmod 444 README.md"),
    # Links
    Operation("ln -s", "ln -s README.md new-link"),
    Operation("retarget a link", "ln -sfn README.md link"),
    Operation("remove a link", "rm link"),
    Operation("a link becomes a file", "rm link && echo x > link"),
    Operation("a file becomes a link", "rm README.md && ln -s src/app.py README.md"),
    Operation("a link out of the workspace", "ln -s /etc/hostname outside"),
    Operation("a hard link", "ln README.md hard.md", conflict="hard_linked"),
    Operation("write through a link", "echo more >> link"),
    Operation("a folder becomes a link", "mv docs d2 && ln -s d2 docs"),
    # Archives, patches
    Operation(
        "tar xf",
        "tar cf /tmp/perdure-corpus-$$.tar src && rm -rf src && mkdir out && "
        "tar xf /tmp/perdure-corpus-$$.tar -C out && rm /tmp/perdure-corpus-$$.tar",
        needs=("tar",),
    ),
    Operation("gzip", "gzip -k README.md && gzip docs/guide.md", needs=("gzip",)),
    Operation("zip by python", "python3 -m zipfile -c all.zip src && python3 -m zipfile -e all.zip unpacked"),
    Operation("patch -p1", f"patch -s -p1 <<'EOF'\n{_PATCH}EOF", needs=("patch",)),
    Operation("git apply", f"git apply <<'EOF'\n{_PATCH}EOF", needs=("git",)),
    # git
    Operation(
        "git checkout a file", "echo x > src/app.py && git checkout -q -- src/app.py", changes_nothing=True
    ),
    Operation("git checkout an older file", "git checkout -q v1 -- docs/guide.md", needs=("git",)),
    Operation("git switch", "git switch -q feature", needs=("git",)),
    Operation(
        "git stash", "echo x >> README.md && echo y >> src/util.py && git stash -q", changes_nothing=True
    ),
    Operation("git stash and pop", "echo x >> README.md && git stash -q && git stash pop -q", needs=("git",)),
    Operation("git reset --hard", "git reset -q --hard v1", needs=("git",)),
    Operation("git clean -fdx", "git clean -qfdx", needs=("git",)),
    Operation("git rebase", "git switch -q feature && git rebase -q main", needs=("git",)),
    Operation("git merge", "git merge -q --no-edit feature", needs=("git",)),
    Operation("git mv", "git mv src/util.py src/tools.py", needs=("git",)),
    Operation("git rm", "git rm -q src/data.json", needs=("git",)),
    Operation("git commit", "echo x >> README.md && git commit -qam third", needs=("git",)),
    Operation("git revert", "git revert --no-edit HEAD > /dev/null", needs=("git",)),
    Operation("rm -rf .git and more", "rm -rf .git src", needs=("git",), lost=(".git",)),
    # Programs
    Operation(
        "a formatter",
        "python3 - <<'EOF'\nimport json, pathlib\np = pathlib.Path('src/data.json')\n"
        "p.write_text(json.dumps(json.loads(p.read_text()), indent=4))\nEOF",
    ),
    Operation("mass rewrite", "grep -rl line_ src | xargs sed -i 's/line_/row_/g'"),
    Operation(
        "a build folder", "mkdir build && echo x > build/out.o && echo y >> README.md", not_covered=("build",)
    ),
    Operation("a log file", "seq 100000 > run.log && echo y >> README.md", not_covered=("run.log",)),
    Operation("a FIFO", "mkfifo pipe && echo x >> README.md", not_covered=("pipe",)),
    Operation(
        "a socket",
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"; echo x >> README.md",
        not_covered=("s",),
    ),
    Operation("a sparse file", "truncate -s 20M sparse.img"),
    Operation("a command that fails half-way", "echo x > half.txt && rm src/util.py && false"),
    Operation(
        "a background writer",
        "(for i in $(seq 500); do [ -e ../go ] && echo late >> README.md && echo > ../gone && exit; sleep 0.02; done)"
        " > /dev/null 2>&1 & echo now > now.txt",
        is_background=True,
    ),
    Operation("read only", "cat src/*.py > /dev/null; ls -R . > /dev/null", changes_nothing=True),
    Operation("touch only the time", "touch -d '2020-01-01' README.md", changes_nothing=True),
    Operation("there and back", "mv README.md x && mv x README.md", changes_nothing=True),
)
