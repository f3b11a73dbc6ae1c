"""Languages are newer than their grammars: what is right in them is no error, and what is wrong beside it still is."""

from __future__ import annotations

import pytest

from perdure.validate import check
from perdure.validate.detect import detect
from perdure.validate.newer_syntax import reworded
from perdure.validate.python_newer import older

RIGHT = [
    ("python", "type Pair[T] = tuple[T, T]\ntype = 1\n"),
    (
        "python",
        "def first[T: (int, str), *Ts, **P](x: T) -> T:\n    return x\nclass Box[\n    T\n](Base):\n    pass\n",
    ),
    ("python", "x = f\"{d[\"key\"]!r:>{w[\"a\"]}} {', '.join(f\"{y}\" for y in z)} {a != b}\"\n"),
    ("python", "x = rf\"\\d{{2}}\\{a[\"b\"]}\" f'\\N{BULLET} {\"\\n\".join(a)}'\n"),
    ("python", "x = f'{\n    a  # why\n}'\ny = t'{name!r:>10}'\n"),
    ("python", "try:\n    pass\nexcept ValueError, TypeError:\n    pass\n"),
    ("java", "import module java.base;\nclass A { A(int x) { check(x); super(x); } }\n"),
    ("java", "class A { void f(Object @NotNull ... params) {} }\n"),
    ("typescript", "abstract class A<in T, out U> {}\nlet y: import('a').B<C>;\n"),
    ("typescript", "import defer * as ns from 'x';\nclass C { static accessor a = 1; }\n"),
    ("tsx", 'const a = <a href="x?b=1&c=2">Tom & Jerry</a>;\ntype A = B & C;\nlet x = a & b && c;\n'),
    ("javascript", 'const a = <label class="x" for="y">A</label>;\nusing(x);\n'),
    ("typescript", "let abstract = 1;\nabstract.x();\n"),
    ("rust", "fn f() -> R {\n    let x = try!(g());\n    Ok(try![h(x)])\n}\n"),
    ("rust", 'fn f() { g(str![[r#"a "b" c"#]]); }\n'),
    ("cpp", "int* my_nonnull f() { return x; }\nvoid g(int* my_nonnull p);\n"),
    ("javascript", "const p = String.raw`C:\\users\\x`;\n"),
    ("rust", 'unsafe extern "C" { safe fn f(); pub safe static X: i32; }\n'),
    ("rust", "impl<T: ?Sized + ~const A> const B for C<T> {}\ntrait Both = A + B;\nfn f() -> D<-1> {}\n"),
    ("c", "void f(int x) { switch (x) { case 1 ... 5: break; } goto *p; end: }\n"),
    ("c", "struct p { int a:3; int :0; };\nvoid f() { typeof_unqual(x) q = 1; }\n"),
    ("c", "void g(void) { free_all(&a, struct entry, ent); p = alloc(n, T*); }\n"),
    ("c", "static z_const Bytef *a;\nvoid f(void) { g((z_const Bytef *)b); }\n"),
    ("cpp", "export module a.b:part;\nimport <vector>;\nexport { int x; }\n"),
    ("cpp", "class A { Q_OBJECT\npublic slots:\n void x();\nsignals:\n void y(int n);\n};\n"),
    ("cpp", "struct A { int b : 3 = 1; void h(this A self); A(const A&) = delete(\"no\"); };\n"),
    ("cpp", "void f() { if consteval { } B b = {.x = 1, .y{2}}; auto g = [&] mutable { }; }\n"),
    ("cpp", "enum class E { A [[deprecated]] = 2 };\nextern template class W<int>;\n"),
    ("sql", "SELECT 1 AS a \\gset\nSELECT 2 \\g\nSELECT 3;\n"),
    ("sql", "SELECT q'[it's]' FROM dual;\nCREATE RULE r AS ON INSERT TO t DO (DELETE FROM a; NOTIFY b);\n"),
    ("sql", "DELIMITER $$\nCREATE PROCEDURE p() BEGIN SELECT 1;\n  #  1) it's\n END $$\n\nDELIMITER ;\nSET a = 'b';\n"),
    ("sql", "REM it's a remark / or two\nprompt done, isn't it\n@install.sql\nCONNECT scott/x\nSELECT 1 FROM dual;\n"),
    ("sql", "CREATE TABLE dbo.t (\n  a int,\n)\nGO\n"),
    ("sql", ".mode csv\n.import it's t\nSELECT 1;\n"),
    ("sql", "insert into t values (1)\ninsert into t values (2)\n"),
    ("latex", "\\MakeShortVerb{\\|}\n|\\begin{x}| and |{|\n\\path|{|\n"),
    ("latex", "\\begin{document}\n\\ifthenelse{\\x}{a}{\\end{document}}\nb\n\\end{document}\n"),
    ("latex", "\\iffalse { \\ifx\\a\\b c\\fi $ \\fi\nd\n"),
    ("markdown", "See [there](page.md#\nname).\n"),
    ("c", 'typedef interface A A;\nchar *s = x ? ":..." : "a";\nvoid printflike(1, 2)\nlog_it(const char *f, ...);\n'),
    ("cpp", "typedef R (C::*F)(A) const;\nvoid g() { (b->*p)(2); emit done(1); }\n"),
    ("markdown", "&nbsp; | `a` | `b`\n-------|-----|----\nx | 1 | 2\n"),
    ("markdown", "---\ntitle: x\n\ntags: [a]\n---\n\n# A [b](c.md d)\n"),
    ("cpp", "void f() { g(ok ? (a = S(x), &a) : 0); while ((n = h(y), n > 0)) (k += 1, p <<= 2, *q); }\n"),
    ("cpp", "void f(int a = 1, int b = 2);int g() { for (i = 0, j = 1; i < j; i++, j--);\nreturn (a == 1, b = c, d); }\n"),
    ("cpp", "auto f = [](int a = 1, int b = 2) { return (a = b); };\nint sum(auto... x) { return (x + ...); }\n"),
    ("c", "static int my_cdecl compare(const void *a, const void *b);\n"),
    ("c", "void f(int x) { switch (x) { case 1: { y(); deliberate_fall_through } case 2: z(); } }\n"),
    ("cpp", 'void f() { auto m = (unsigned{1} << 2); throw E("no template type for it", R"(a"b)"); }\n'),
    ("latex", "\\forprint{\\begin{small}}\na\n\\forprint{\\end{small}}\n"),
    ("latex", "A |}| here.\n"),
    ("c", "struct A {\n  ~A() { free(p); }\n  void *p;\n};\n"),
    ("rust", "--- cargo\n[package]\n---\nfn f(#[a] #[b(c)] x: i32) {}\n"),
    ("rust", "macro_rules! m { ($(,~$n:expr)*) => {}; }\nm!(1, ~Mode::VI);\n"),
    ("typescript", "abstract class A { abstract override readonly b: C; }\nif (using !== 'x') {}\n"),
    ("latex", "Math is |$|, and so on.\n"),
    ("yaml", "%YAML 1.0\n---\na: 1\n"),
    ("javascript", 'import a from "./a.json" assert {type: "json"};\n'),
    ("typescript", "type A = {\n  b?: C\n  in?: D\n  instanceof: E\n}\n"),
    ("latex", "Close it by |\\end{slide}| and begin with |\\begin{slide}|.\n"),
    ("latex", "\\begin{x}\n|\\let| and $a$\n\\let\\open={\n\\end{x}\n"),
    ("latex", "\\begin{codeexample}[]\n\\begin{document}\n\\end{codeexample}\n"),
    ("markdown", "# A\n\n@code{.py}\n\n#b\n@endcode\n"),
    ("sql", ".import -csv <<END t\na,,b\nit's\nEND\nSELECT 1;\n"),
    ("cpp", "struct A : B<C{}, (1 > 0)> { void f(const void* = nullptr); };\nauto d = static_cast<E (*)(F<G>)>(h->i);\n"),
    ("cpp", "template <typename T,\n          class U = std::enable_if_t<(sizeof(T) < 4)>>\nclass A {};\n"),
    ("markdown", "# A\n\n```diff\n<<<<<<< HEAD\n```\n"),
    ("html", "<!--\n<<<<<<< HEAD\n-->\n<script>\n<<<<<<< a\n</script>\n"),
    ("c", "/*\n<<<<<<< HEAD\n*/\nint x;\n"),
    ("typescript", "type A =\n  | B\n  | C;\nlet d = e || f;\n"),
    ("go", "package a\n\nfunc f() {\n\t{\n\t\tg(b{\n\t\t\t{1},\n\t\t})\n\t}\n}\n\nvar s = `\nif x\n{\n`\n"),
    ("markdown", "# A\n\n[a]((b)c.md)\n"),
    ("cpp", "class A : public B,\n  private C {\npublic slots:\n  int x;\n};\n"),
    ("css", ".tw\\:bg-\\[url\\(\\'a.png\\'\\)\\] { color: red; }\n"),
]  # fmt: skip

WRONG = [
    ("rust", "---\n[package]\n---\nfn f( {}\n", 4),
    ("rust", "fn f() {\n    let x = ~y;\n}\n", 2),
    ("javascript", "const a = '<%= b %>';\nf(;\n", 2),
    ("python", "type X = int\ndef f(:\n    pass\n", 2),
    ("python", 'a = 1\nx = f"{d["a"] +}"\n', 2),
    ("python", 'type X = int\ny = f"{d["a"]} and\n', 2),
    ("java", "import module java.base;\nclass A {\n  void f() { int x = ; }\n}\n", 3),
    ("typescript", "class A<in T> {}\nlet x = (1 + ;\n", 2),
    ("rust", "trait Both = A + B;\nfn f( {}\n", 2),
    ("c", "void f(int x) {\n  switch (x) { case 1 ... 5: y = ; }\n}\n", 2),
    ("cpp", "class A {\npublic slots:\n  void x(;\n};\n", 3),
    ("sql", "SELECT 1 \\gset\nSELECT (2;\n", 2),
    ("sql", "UPDATE t\nSET name 'x' WHERE id = 1;\n", 2),
    ("sql", "SELECT a\nFROM t WHERE b = = 1;\n", 2),
    ("sql", "SELECT a,\nFROM t;\n", 1),
    ("shell", 'x=1\nif [[ "$x" = a ]; then\n  echo\nfi\n', 2),
    ("shell", "x=1\ncat <<EOF\nabc\n  EOF\necho\n", 2),
    ("css", '@import url("x.css")\n\na { b: c; }\n', 1),
    ("css", ".a,\n, .b { c: d; }\n", 1),
    ("css", "a {\n  width:: 1px;\n}\n", 2),
    ("c", "int x;\n#inclde <stdio.h>\n", 2),
    ("c", "#include <stdio.h\nint x;\n", 1),
    (
        "c",
        "int f(int x)\n\n    switch (x) {\n    case 1:\n        break;\n    default:\n        x = 2;\n    }\n}\n",
        9,
    ),
    ("latex", "\\documentclass{a}\n\\begin{document}\n\nA\n\nB\n", 6),
    ("markdown", "# A\n\n<details>\n<summary>x\n\ny\n\n</details>\n", 4),
    ("markdown", "# A\n\nSee [a](b.md and [c](d.md).\n", 3),
    ("markdown", "# A\n\nSee [a(https://b.c).\n", 3),
    ("markdown", "##A heading\n\n## Another\n", 1),
    ("markdown", "---\ntitle: x\n\n# A\n", 1),
    ("markdown", "# A\n\nSee [a](https://b.c/d_(e) and more.\n", 3),
    ("markdown", '# A\n\n![a](b.png "A"\n', 3),
    ("markdown", "# A\n\n``sh\nls\n```\n", 3),
    ("sql", "WITH a AS (SELECT 1)\nSELECT b FROM a\nGROUP c;\n", 3),
    ("sql", "WITH a AS (SELECT 1)\nSELECT b FROM a LIMIT 10\n\nALTER TABLE t ADD c int;\n", 2),
    ("sql", "CREATE FUNCTION f() RETURNS int AS $$\nBEGIN\n  RETURN 1;\nEND;\nLANGUAGE plpgsql;\n", 4),
    ("latex", "\\newcommand{\\R}{\\mathbb{R}\n\\begin{document}\na\n\\end{document}\n", 1),
    ("latex", "\\newcommand{\\R}{r}\n\\title{A\n\\begin{document}\na\n\\end{document}\n", 2),
    ("latex", "\\[\n  a\n  b\n\nc\n\\[ d \\]\n", 4),
    ("c", "typedef struct n {\n    int v;\n} n_t\n\nenum c { A };\n", 3),
    ("markdown", "| a | b |\n|---|\n", 2),
    ("cpp", "int f() {\n  g((a = S(x), &a));\n  return (a = , b);\n}\n", 3),
    ("cpp", "int f() {\n  return (a = b,, c);\n}\n", 2),
    ("latex", "A |\\begin{x}| b\n\\begin{y}\nc\n", 3),
    ("latex", "\\documentclass{a}\n\\begin{document}\n$|$\\begin{x} $|$\n\\end{document}\n", 4),
    ("markdown", "# A\n\n@code\n\n#b\n", 5),
    ("rust", "---\n[package]\n---\nfn f( {}\n", 4),
    ("rust", "fn f() {\n    let x = ~y;\n}\n", 2),
    ("javascript", "const a = '<%= b %>';\nf(;\n", 2),
    ("cpp", "int x;\ntemplate <typename T\nstruct A {\n  T a;\n};\n", 2),
    ("cpp", "template <class K>\nstruct A : B<K {\n  int a;\n};\n", 2),
    ("cpp", "int f(int a) {\n  return g(static_cast<int(a)) + 1;\n}\n", 2),
    ("cpp", "template <class K>\nstruct A : B<K> {\n  int a;\n}\ninline bool f(int a);\n", 4),
    ("cpp", "namespace a\n\nclass B {\n  int x;\n};\n\n}\n", 1),
    ("c", "int x;\n<<<<<<< HEAD\nint y;\n=======\nint z;\n>>>>>>> other\n", 2),
    ("markdown", "# A\n\nb\n<<<<<<< HEAD\nc\n", 4),
    ("html", "<p>a</p>\n<<<<<<< HEAD\n<p>b</p>\n", 2),
    ("css", "a { b: c; }\n<<<<<<< HEAD\nd { e: f; }\n", 2),
    ("sql", "SELECT 1;\n<<<<<<< HEAD\nSELECT 2;\n", 2),
    ("sql", "SELECT a FROM b\nJOIN ON b.c = d.e;\n", 2),
    ("sql", "SELECT a FROM b\nWHERE c BETWEEN 1 AND\nGROUP BY d;\n", 2),
    ("sql", "CREATE VIEW v AS\nSELECT a FROM b\nORDER a;\n", 3),
    ("css", '@charset "utf-8"\n@import url("a.css");\n', 1),
    ("markdown", "# A\n\n[a: https://example.org\n", 3),
    ("toml", 'a = [\n  "b",\n\n[c]\nd = 1\n', 3),
    ("shell", "cat <<END\na\nENDE\necho\n", 3),
    ("shell", 'for a in "${b[@]"; do\n  echo "$a"\ndone\n', 1),
    ("shell", "for a in b; do\n  c=$(d || true\n  echo\ndone\n", 2),
    ("typescript", "let a: B;\nlet c: D | | E;\n", 2),
    ("cpp", "class A {\npublic\n  int x;\n};\n", 2),
    ("go", "package a\n\nfunc f(b int) {\n\tif b > 1\n\t{\n\t\treturn\n\t}\n}\n", 5),
    ("markdown", "# A\n\n![a]((b.png)\n", 3),
    ("markdown", "<div>\n\n**a**\n\n## B\n\nc\n\nd\n", 4),
    ("sql", ".mode csv\nSELECT a,,b;\n", 2),
]


@pytest.mark.parametrize(("form", "text"), RIGHT)
def test_what_is_newer_than_the_grammar_is_no_error(form: str, text: str) -> None:
    report = check(text, format_hint=form)
    assert (report.valid, report.errors) == (True, [])


@pytest.mark.parametrize(("form", "text", "line"), WRONG)
def test_what_is_wrong_beside_it_is_found(form: str, text: str, line: int) -> None:
    report = check(text, format_hint=form)
    assert report.valid is False
    assert line in [problem.line for problem in report.errors]


@pytest.mark.parametrize(("form", "text"), RIGHT)
def test_other_words_keep_every_place(form: str, text: str) -> None:
    other = reworded(form, text)
    if form == "python":
        found = older(text)
        assert found is not None
        other = found.text
    assert [len(row) for row in other.split("\n")] == [len(row) for row in text.split("\n")]


@pytest.mark.parametrize(
    ("path", "text", "form"),
    [
        ("app_de.ts", '<?xml version="1.0"?>\n<TS/>', "xml"),
        ("app_de.ts", '<TS version="2.1">', "xml"),
        ("app.ts", "<T>(x: T) => x", "typescript"),
        (".eslintrc", "# rules\nrules:\n  a: 1\n", "yaml"),
        (".eslintrc", '{"rules": {}}', "jsonc"),
        ("cspell.json", "{}", "jsonc"),
    ],
)
def test_a_name_that_two_formats_share_is_settled_by_the_text(path: str, text: str, form: str) -> None:
    assert detect(text, target_path=path) == form


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.h", "@interface A : NSObject\n- (void)run;\n@end\n"),
        ("a.sh", "for plugin ($plugins); do\n  echo\ndone\n"),
        ("a.sh", "#!/usr/bin/env zunit\n@test 'x' {\n}\n}\n"),
        ("a.hpp", "Platform::String^ convert(cv::String name);\n"),
    ],
)
def test_another_language_under_the_same_name_is_not_judged(path: str, text: str) -> None:
    assert check(text, target_path=path).valid is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("feed.xml", "---\nlayout: null\n---\n<?xml version='1.0'?>\n<a/>\n"),
        ("a.sh", "unset <%= NAMES.join(' ') %>\nunset $(env)\n"),
        ("a.js", "export default class <%= name %> extends A {}\n"),
        (
            "a.html",
            "<!--#include virtual='top.htm' -->\n<div>\n<p>a</p>\n<!--#include virtual='end.htm' -->\n",
        ),
        ("a.tex", "$head_prefix% generated\n\n\\begin{document}\na\n\\end{document}\n"),
        ("a.tex", "{\n  \\catcode`\\/=0\n  \\catcode`\\\\=12\n  /gdef/x{\\/the/y\\}\n}\n"),
    ],
)
def test_what_is_made_into_the_format_later_is_not_judged(path: str, text: str) -> None:
    assert check(text, target_path=path).valid is None


def test_two_conditionals_of_which_a_compiler_reads_one_are_only_doubted() -> None:
    text = "int a[] = {\n#ifdef X\n  1, 2\n#endif\n#ifdef Y\n  3, 4\n#endif\n};\n"
    report = check(text, format_hint="c")
    assert (report.valid, [p.severity for p in report.errors]) == (True, ["warning"])


def test_a_mark_before_the_name_of_a_long_class_is_read_as_one() -> None:
    members = "".join(f"  virtual int member_{n}(const Name& one, int two) const;\n" for n in range(100))
    report = check(f"class MY_API Long : public Base {{\n public:\n{members}}};\n", format_hint="cpp")
    assert (report.valid, report.errors) == (True, [])
