"""Texts and slips for programming languages, the shell and SQL."""

from __future__ import annotations

from typing import Final

_PYTHON = '''\
"""A harbour."""

import os


class Harbour:
    name = "x"

    def __init__(self, ports: list[int]) -> None:
        self.ports = {port: None for port in ports}
        self.open = True

    def close(self, why: str) -> str:
        if self.open and why:
            for port in self.ports:
                print(
                    port,
                    why,
                )
        else:
            return "nothing"
        return f"closed {why}"


def main() -> int:
    harbour = Harbour([80, 443])
    try:
        harbour.close(os.environ["WHY"])
    except KeyError:
        return 1
    return 0
'''
_JAVASCRIPT = """\
import { open } from "./harbour.js";

const ports = [80, 443];

export class Harbour {
  constructor(name) {
    this.name = name;
    this.ports = new Map();
  }

  close(why) {
    if (why === "late") {
      return `closed ${this.name}`;
    }
    for (const port of ports) {
      console.log(port, why);
    }
    return { name: this.name, ok: true };
  }
}

export async function main() {
  const harbour = new Harbour("a");
  const late = ports.map((port) => port + 1);
  await open(harbour, late);
}
"""
_TYPESCRIPT = """\
import type { Port } from "./ports";

interface Options {
  name: string;
  ports: Port[];
}

export class Harbour<T extends Port> {
  private readonly open: boolean = true;

  constructor(private options: Options) {
    this.open = options.ports.length > 0;
  }

  close(why: string): string | undefined {
    if (this.open) {
      return `closed ${why}`;
    }
    return undefined;
  }
}

type Kind = "a" | "b";

export function main(kinds: Kind[]): number {
  const count = kinds.filter((kind) => kind === "a").length;
  return count + 1;
}
"""
_GO = """\
package main

import (
\t"fmt"
\t"os"
)

type Harbour struct {
\tName  string
\tPorts []int
}

func (h *Harbour) Close(why string) error {
\tif why == "" {
\t\treturn fmt.Errorf("no reason")
\t}
\tfor _, port := range h.Ports {
\t\tfmt.Println(port, why)
\t}
\treturn nil
}

func main() {
\th := &Harbour{Name: "a", Ports: []int{80, 443}}
\tif err := h.Close(os.Args[0]); err != nil {
\t\tos.Exit(1)
\t}
}
"""
_RUST = """\
use std::collections::HashMap;

#[derive(Debug)]
struct Harbour<'a> {
    name: &'a str,
    ports: Vec<u16>,
}

impl<'a> Harbour<'a> {
    fn new(name: &'a str) -> Self {
        Harbour { name, ports: vec![80, 443] }
    }

    fn close(&self, why: &str) -> Result<String, String> {
        if why.is_empty() {
            return Err("no reason".to_string());
        }
        for port in &self.ports {
            println!("{} {}", port, why);
        }
        Ok(format!("closed {}", self.name))
    }
}

fn main() {
    let harbour = Harbour::new("a");
    let mut seen: HashMap<u16, bool> = HashMap::new();
    seen.insert(80, true);
    println!("{:?}", harbour.close("late"));
}
"""
_JAVA = """\
package org.example;

import java.util.List;

public class Harbour {
    private final String name;
    private List<Integer> ports = List.of(80, 443);

    public Harbour(String name) {
        this.name = name;
    }

    public String close(String why) {
        if (why.isEmpty()) {
            throw new IllegalArgumentException("no reason");
        }
        for (int port : ports) {
            System.out.println(port + why);
        }
        return "closed " + name;
    }

    public static void main(String[] args) {
        Harbour harbour = new Harbour("a");
        harbour.close(args[0]);
    }
}
"""
_C = """\
#include <stdio.h>
#include <stdlib.h>

#define PORTS 2

struct harbour {
    const char *name;
    int ports[PORTS];
};

static int close_it(struct harbour *h, const char *why)
{
    int i;
    if (why == NULL) {
        return -1;
    }
    for (i = 0; i < PORTS; i++) {
        printf("%d %s\\n", h->ports[i], why);
    }
    h->name = "closed";
    return 0;
}

int main(int argc, char **argv)
{
    struct harbour h = { "a", { 80, 443 } };
    int result = close_it(&h, argv[0]);
    if (result != 0)
        exit(1);
    return argc + 0;
}
"""
_CPP = """\
#include <map>
#include <string>

namespace harbour {

template <typename T>
class Harbour {
 public:
  explicit Harbour(std::string name) : name_(std::move(name)) {}

  bool close(const std::string& why) const {
    if (why.empty()) {
      return false;
    }
    for (const auto& port : ports_) {
      report(port.first, why);
    }
    return true;
  }

 private:
  std::string name_;
  std::map<int, T> ports_;
};

}  // namespace harbour

int main() {
  harbour::Harbour<int> h("a");
  auto late = [&h](int n) { return n > 0; };
  return h.close("late") && late(1) ? 0 : 1;
}
"""
_SHELL = """\
#!/usr/bin/env bash
set -euo pipefail

name="harbour"
ports=(80 443)

close_it() {
  local why="$1"
  if [ -z "$why" ]; then
    echo "no reason" >&2
    return 1
  fi
  for port in "${ports[@]}"; do
    echo "$port: $(date +%s)"
  done
  case "$why" in
    late) echo late ;;
    *) echo other ;;
  esac
}

while read -r line; do
  close_it "$line"
done < input.txt

cat <<EOF
it's done, $name
EOF
"""
_SQL = """\
-- ports
CREATE TABLE harbour (
    id INTEGER PRIMARY KEY,
    name VARCHAR(40) NOT NULL,
    opened DATE DEFAULT '2024-01-01'
);

INSERT INTO harbour (id, name) VALUES
    (1, 'a'),
    (2, 'b''s');

SELECT h.name, COUNT(*) AS n
FROM harbour h
JOIN port p ON p.harbour_id = h.id
WHERE h.opened > '2020-01-01' AND (p.open = 1 OR p.late IS NULL)
GROUP BY h.name
ORDER BY n DESC;

UPDATE harbour SET name = 'c' WHERE id = 2;

DELETE FROM harbour
WHERE id IN (SELECT id FROM old);
"""
CODE: Final[dict[str, tuple[str, tuple[tuple[str, str], ...]]]] = {
    "python": (
        _PYTHON,
        (
            ('name = "x"', 'name = "x'),
            ("class Harbour:", "class Harbour"),
            ("in ports}", "in ports"),
            ("        self.open = True", "       self.open = True"),
            ("and why:", "and why"),
            ("                )\n", "\n"),
            ("        else:", "       else:"),
            ("[80, 443])", "[80, 443)"),
            ('["WHY"])', '["WHY"]'),
            ("return 0", "return 0 0"),
        ),
    ),
    "javascript": (
        _JAVASCRIPT,
        (
            ('"./harbour.js";', '"./harbour.js;'),
            ("443];", "443;"),
            ("this.name = name;", "this.name = = name;"),
            ('"late") {', '"late" {'),
            ("    }\n    for", "    \n    for"),
            ("ok: true }", "ok: true"),
            ("(port) =>", "(port =>"),
            ("console.log(port, why);", "console.log(port why);"),
            ("await open(harbour, late);\n}", "await open(harbour, late);\n"),
            ("const late", "const const late"),
        ),
    ),
    "typescript": (
        _TYPESCRIPT,
        (
            ('"./ports";', '"./ports;'),
            ("ports: Port[];\n}", "ports: Port[];\n"),
            ("extends Port>", "extends Port"),
            ("boolean = true", "boolean = "),
            ("private options: Options)", "private options: Options"),
            ("this.open) {", "this.open {"),
            ("    }\n    return undefined", "    \n    return undefined"),
            ('"a" | "b";', '"a" | | "b";'),
            ('kind === "a")', 'kind === "a"'),
            ("count + 1", "count + + )"),
        ),
    ),
    "go": (
        _GO,
        (
            ('"fmt"', '"fmt'),
            ("struct {", "struct"),
            ("Ports []int\n", "Ports [int\n"),
            ("error {", "error"),
            ('("no reason")', '("no reason"'),
            ("\t}\n\tfor", "\t\n\tfor"),
            (":= range", ": range"),
            ("443}}", "443}"),
            ("os.Exit(1)", "os.Exit(1))"),
            ("err != nil {", "err != {"),
        ),
    ),
    "rust": (
        _RUST,
        (
            ("HashMap;\n\n#", "HashMap\n\n#"),
            ("Vec<u16>,\n}", "Vec<u16>,\n"),
            ("443] }", "443 }"),
            ("&str) -> Result", "&str -> Result"),
            ("why.is_empty() {", "why.is_empty() "),
            ('"no reason"', '"no reason'),
            ("        }\n        for", "        \n        for"),
            ("port, why);", "port, why;"),
            ('new("a");', 'new("a")'),
            ("let mut seen:", "let mut seen seen:"),
        ),
    ),
    "java": (
        _JAVA,
        (
            ("util.List;", "util.List"),
            ("String name;\n", "String name\n"),
            ("443);", "443;"),
            ("        this.name = name;\n    }", "        this.name = name;\n"),
            ("why.isEmpty()) {", "why.isEmpty() {"),
            ('"no reason"', '"no reason'),
            ("int port : ports", "int port ports"),
            ("port + why);", "port + );"),
            ("String[] args) {", "String[] args)"),
            ('Harbour("a");', 'Harbour("a")'),
        ),
    ),
    "c": (
        _C,
        (
            ("ports[PORTS];\n", "ports[PORTS;\n"),
            ("};\n\nstatic", "}\n\nstatic"),
            ("int i;", "int i"),
            ("== NULL) {", "== NULL {"),
            ("i++) {", "i++) "),
            ('"%d %s\\n"', '"%d %s\\n'),
            ('= "closed";', '= "closed"'),
            ("{ 80, 443 } };", "{ 80, 443 };"),
            ("argv[0]);", "argv[0];"),
            ("return argc + 0;", "return argc + ;"),
        ),
    ),
    "cpp": (
        _CPP,
        (
            ("typename T>", "typename T"),
            ("class Harbour {", "class Harbour"),
            ("std::move(name)) {}", "std::move(name) {}"),
            ("why.empty()) {", "why.empty() {"),
            ("return false;", "return false"),
            ("    }\n    return true", "    \n    return true"),
            ("name_;\n", "name_\n"),
            ("ports_;\n};", "ports_;\n;"),
            ('h("a");', 'h("a);'),
            ("n > 0; };", "n > 0; ;"),
        ),
    ),
    "shell": (
        _SHELL,
        (
            ('"harbour"', '"harbour'),
            ("ports=(80 443)", "ports=(80 443"),
            ("close_it() {", "close_it( {"),
            ('"$why" ]; then', '"$why" ];'),
            ("    return 1\n  fi", "    return 1\n"),
            ('"${ports[@]}"; do', '"${ports[@]}";'),
            ("  done\n", "\n"),
            ("$(date +%s)", "$(date +%s"),
            ("  esac\n", "\n"),
            ("echo late ;;", "echo late ;;;"),
        ),
    ),
    "sql": (
        _SQL,
        (
            ("id INTEGER PRIMARY KEY,", "id INTEGER PRIMARY KEY"),
            ("VARCHAR(40)", "VARCHAR(40"),
            ("'2024-01-01'\n);", "'2024-01-01',\n);"),
            ("(1, 'a'),", "(1, 'a),"),
            ("(2, 'b''s')", "(2 'b''s')"),
            ("FROM harbour h\n", "FORM harbour h\n"),
            ("'2020-01-01' AND (", "'2020-01-01' AND AND ("),
            ("IS NULL)", "IS NULL"),
            ("SET name = 'c'", "SET name = "),
            ("FROM old);", "FROM old;"),
        ),
    ),
}
