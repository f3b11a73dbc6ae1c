"""Texts and slips for the formats of data and documents."""

from __future__ import annotations

from typing import Final

_JSON = """\
{
  "name": "harbour",
  "version": "1.4.0",
  "private": true,
  "ports": [8080, 8443, 9090],
  "owner": {
    "name": "Ada",
    "mail": "ada@example.org"
  },
  "limits": {
    "cpu": 2.5,
    "memory": null
  },
  "tags": [
    "a",
    "b",
    "c"
  ],
  "ready": false
}
"""
_YAML = """\
name: harbour
on:
  push:
    branches: [main, "release/*"]
env:
  LEVEL: debug
  TITLE: "a title: with a colon"
jobs:
  build:
    runs-on: linux
    steps:
      - uses: checkout
      - name: Test
        run: |
          make test
          make lint
      - name: Ship
        with: {host: example.org, port: 22}
  notify:
    needs: [build]
    steps:
      - run: 'echo done'
"""
_TOML = """\
title = "Harbour"
debug = false

[owner]
name = "Ada"
born = 1815-12-10

[server]
host = "127.0.0.1"
ports = [8000, 8001, 8002]
limits = { cpu = 2, memory = "1G" }

[[mount]]
name = "a"
path = '/srv/a'

[[mount]]
name = "b"
notes = \"\"\"
two
lines
\"\"\"
weights = [
  1.5,
  2.5,
]
"""
_XML = """\
<?xml version="1.0" encoding="utf-8"?>
<catalog xmlns="urn:example:books">
  <!-- two books -->
  <book id="b1" lang="en">
    <title>First</title>
    <price currency="EUR">12.50</price>
    <tags>
      <tag>old</tag>
      <tag>rare</tag>
    </tags>
  </book>
  <book id="b2" lang="de">
    <title>Second &amp; last</title>
    <price currency="EUR">9.00</price>
    <cover file="b2.png"/>
  </book>
</catalog>
"""
_LATEX = r"""\documentclass{article}
\usepackage{amsmath} % for math
\newcommand{\set}[1]{\{#1\}}
\newenvironment{note}{\begin{quote}}{\end{quote}}
\begin{document}
\section{Ports}
A set \{a, b\} costs 5\% of $x^2 + y_1$ and of $z$.

\begin{itemize}
  \item first, \textbf{bold text} here
  \item second with \verb|{ $ %| in it
\end{itemize}

\begin{equation}
  f(x) = \frac{a}{b}
\end{equation}

\begin{verbatim}
  { not $ checked \begin{x}
\end{verbatim}

\section{Ends}
\begin{center}
  \emph{The end} of it.
\end{center}
\[ a + b \]
\end{document}
"""
_MARKDOWN = """\
---
title: Harbour
draft: false
---

# Harbour

Some **strong text** and `code` with a [link](https://example.org/a).

```sh
make test
make lint
```

See the [manual][m] and ![a picture](img/a.png).

| name | port |
|------|------|
| a    | 80   |
| b    | 443  |

<!-- a comment -->

Last **words** here.

[m]: https://example.org/manual
"""
_HTML = """\
<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>Harbour</title>
  <style>p { color: red; }</style>
</head>
<body>
  <header class="top">
    <h1>Harbour</h1>
  </header>
  <div id="main">
    <ul>
      <li>one
      <li><b>two</b></li>
    </ul>
    <p>A line<br>and <a href="/x">a link</a>.
    <img src="a.png" alt="a">
    <section>
      <table>
        <tr><td>1</td><td>2</td></tr>
      </table>
    </section>
  </div>
  <script>if (a < b) { go("</p>"); }</script>
</body>
</html>
"""
_CSS = """\
@charset "utf-8";
:root {
  --gap: 4px;
}
/* the frame */
body > .main, a:hover {
  color: #333;
  background: url(img/a.png) no-repeat;
  font-family: "Helvetica Neue", sans-serif;
}
@media (max-width: 600px) {
  .menu {
    display: none;
    margin: 0 auto;
  }
}
.card::after {
  content: "x";
  width: calc(100% - var(--gap));
}
.last {
  padding: 1px;
}
"""
DATA: Final[dict[str, tuple[str, tuple[tuple[str, str], ...]]]] = {
    "json": (
        _JSON,
        (
            ('"1.4.0",', '"1.4.0"'),
            ('"harbour"', '"harbour'),
            ("9090]", "9090"),
            ('"mail":', '"mail"'),
            ('  },\n  "limits"', '  ,\n  "limits"'),
            ("2.5,", "2.5,,"),
            ("null", "nul"),
            ('"c"\n', '"c",\n'),
            ('"b",', "'b',"),
            ("false\n}", "false\n"),
        ),
    ),
    "yaml": (
        _YAML,
        (
            ('"release/*"]', '"release/*"'),
            ("LEVEL: debug", "LEVEL debug"),
            ('with a colon"', "with a colon"),
            ("    runs-on", "   runs-on"),
            ("      - uses", "\t- uses"),
            ("port: 22}", "port: 22"),
            ("    needs:", "      needs:"),
            ("'echo done'", "'echo done"),
            ("      - name: Test", "     - name: Test"),
            ("name: harbour", "name: harbour: x"),
        ),
    ),
    "toml": (
        _TOML,
        (
            ('"Harbour"', '"Harbour'),
            ("debug = false", "debug false"),
            ("[owner]", "[owner"),
            ("1815-12-10", "1815-13-10"),
            ("8002]", "8002"),
            ('"1G" }', '"1G"'),
            ("'/srv/a'", "'/srv/a"),
            ('[[mount]]\nname = "b"', '[[mount]\nname = "b"'),
            ('lines\n"""', "lines\n"),
            ("  1.5,", "  1.5 x,"),
        ),
    ),
    "xml": (
        _XML,
        (
            ("First</title>", "First"),
            ("12.50</price>", "12.50</prize>"),
            ('lang="en">', 'lang="en>'),
            ("    </tags>\n", "\n"),
            ("<tag>rare</tag>", "<tag>rare<tag>"),
            ("&amp;", "&"),
            ('currency="EUR">9', "currency=EUR>9"),
            ('b2.png"/>', 'b2.png">'),
            ("</catalog>", ""),
            ("<!-- two books -->", "<!-- two -- books"),
        ),
    ),
    "latex": (
        _LATEX,
        (
            (r"\usepackage{amsmath}", r"\usepackage{amsmath"),
            ("$x^2 + y_1$", "$x^2 + y_1"),
            (r"\textbf{bold text}", r"\textbf{bold text"),
            ("  \\item second with \\verb|{ $ %| in it\n\\end{itemize}\n", "  \\item second\n\n"),
            (r"\frac{a}{b}", r"\frac{a}{b}}"),
            (r"\end{equation}", r"\end{equatoin}"),
            (r"\section{Ends}", r"\section Ends}"),
            ("of it.\n\\end{center}", "of it."),
            (r"\[ a + b \]", r"\[ a + b"),
            (r"\emph{The", r"\emph{{The"),
        ),
    ),
    "markdown": (
        _MARKDOWN,
        (
            ("make lint\n```", "make lint"),
            ("(https://example.org/a).", "(https://example.org/a"),
            ("<!-- a comment -->", "<!-- a comment"),
            ("title: Harbour", "title: [Harbour"),
            ("draft: false", "draft: 'no"),
            ("(img/a.png).", "(img/a.png"),
            ("```sh\n", "~~~sh\n"),
            ("draft: false", "\tdraft: false"),
            ("```sh", "````sh"),
            ("draft: false", " draft: false: x"),
        ),
    ),
    "html": (
        _HTML,
        (
            ("Harbour</h1>", "Harbour</h2>"),
            ("  </header>\n", "\n"),
            ("<b>two</b>", "<b>two"),
            ("a link</a>", "a link"),
            ('<div id="main">', '<div id="main>'),
            ("    </section>\n", "\n"),
            ("</table>", "</tabel>"),
            ("</title>", ""),
            ("    </ul>", "    <ul>"),
            ('class="top">', 'class="top"'),
        ),
    ),
    "css": (
        _CSS,
        (
            ("#333;", "#333"),
            ("--gap: 4px;\n}", "--gap: 4px;\n"),
            ("display: none;", "display none;"),
            ("url(img/a.png)", "url(img/a.png"),
            ('"Helvetica Neue"', '"Helvetica Neue'),
            ("/* the frame */", "/* the frame"),
            ("    margin: 0 auto;\n  }", "    margin: 0 auto;\n"),
            (".last {", ".last"),
            ("calc(100% - var(--gap))", "calc(100% - var(--gap)"),
            ("padding: 1px;\n}", "padding: 1px;\n}\n}"),
        ),
    ),
}
