"""Languages are newer than their grammars, and dialects differ: what is right is no error, what is wrong is noticed."""

from __future__ import annotations

import pytest

from perdure.validate import check, regressions
from perdure.validate.detect import detect

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
    ("latex", "\\documentclass{a}\n\\begin{document}\n\\ifthenelse{\\x}{a}{\\end{document}}\nb\n\\end{document}\n"),
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
    ("c", "int a[] = {\n#ifdef X\n  1, 2\n#endif\n#ifdef Y\n  3, 4\n#endif\n};\n"),
    ("cpp", "class MY_API Long : public Base {\n public:\n  virtual int member(const Name& one, int two) const;\n};\n"),
    ("cpp", "Platform::String^ convert(cv::String name);\n"),
    ("markdown", "# A\n\n#todo call Bob\n"),
    ("markdown", "# A\n\n<div align=center>\n\nb\n"),
    ("sql", "SELECT a, b, FROM t WHERE c IN (1, 2,);\n"),
    ("toml", "a = {\n  b = 1,\n  c = \"\\e\",\n}\n"),
    ("shell", "make |& tee log\nshopt -s globstar\ndeclare -A a=([b]=c)\ncoproc cat\n"),
    ("html", "<div>\n<p>a\n"),
    ("c", "void f(void) {\n  g(cast(Value *, h));\n}\n"),
    ("c", "void f(void) {\n  g(cast(unsigned char, *h));\n}\n"),
    ("c", '#include "gen.h"\n\nmake_things(1)\nph_gen(, a, b)\n'),
    ("c", "static redisAtomic size_t objects = 0;\n"),
    ("c", '#ifdef __cplusplus\n#define NEED\nextern "C" {\n#endif\nint a;\n#ifdef NEED\n}\n#endif\n'),
    ("c", "#define caseOf(N) .Case(#N, N)\nint f(int n) {\n  return Switch(n)\n    caseOf(a)\n    caseOf(b);\n}\n"),
    ("c", "#define NO_RETURN __attribute__((__noreturn__))\nNO_RETURN static void\nusage (int s)\n{\n  exit (s);\n}\n"),
    ("cpp", "class A {\npublic:\n  A(std::string a, std::string b = {})\n  : m_a(std::move(a)) {}\n};\n"),
    ("cpp", "class U_API Amount : public Measure {\n public:\n  Amount(const Format& amount, Ptr code);\n};\n"),
    ("cpp", "struct A {\n  static B A::*list(C *) {\n    return &A::b;\n  }\n};\n"),
    ("cpp", "#define OPENS(n) struct n {\nOPENS(a)\n  int b;\n};\n"),
    ("c", "#ifdef X\nint f(int a) {\n#else\nint f(void) {\n#endif\n  return FOO(int, +) + 1;\n}\n"),
    ("c", '#ifdef __cplusplus\nextern "C" {\n#endif\nAPI int f(void) NOTHROW;\n#ifdef __cplusplus\n}\n#endif\n'),
    ("go", 'package a\n\nvar x = new("a")\n'),
    ("typescript", "const A = styled.div<{a: boolean}>`x`;\nlet b: typeof import('c');\n"),
    ("cpp", "void f(A* a, B* b) {\n  (a->bm->*(a->method))(b);\n}\n"),
    ("typescript", "export type * as A from 'a';\nexport type * from 'b';\n"),
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
    ("shell", 'x=1\nif [[ "$x" = a ]; then\n  echo\nfi\n', 2),
    ("css", '@import url("x.css")\n\na { b: c; }\n', 1),
    ("css", ".a,\n, .b { c: d; }\n", 1),
    ("css", "a {\n  width:: 1px;\n}\n", 2),
    ("c", "#include <stdio.h\nint x;\n", 1),
    (
        "c",
        "int f(int x)\n\n    switch (x) {\n    case 1:\n        break;\n    default:\n        x = 2;\n    }\n}\n",
        9,
    ),
    ("latex", "\\documentclass{a}\n\\begin{document}\n\nA\n\nB\n", 6),
    ("markdown", "---\ntitle: x\n\n# A\n", 1),
    ("markdown", "# A\n\n``sh\nls\n```\n", 3),
    ("sql", "CREATE FUNCTION f() RETURNS int AS $$\nBEGIN\n  RETURN 1;\nEND;\nLANGUAGE plpgsql;\n", 4),
    ("latex", "\\newcommand{\\R}{\\mathbb{R}\n\\begin{document}\na\n\\end{document}\n", 1),
    ("latex", "\\newcommand{\\R}{r}\n\\title{A\n\\begin{document}\na\n\\end{document}\n", 2),
    ("c", "typedef struct n {\n    int v;\n} n_t\n\nenum c { A };\n", 3),
    ("cpp", "int f() {\n  g((a = S(x), &a));\n  return (a = , b);\n}\n", 3),
    ("cpp", "int f() {\n  return (a = b,, c);\n}\n", 2),
    ("latex", "\\documentclass{a}\n\\begin{document}\n$|$\\begin{x} $|$\n\\end{document}\n", 4),
    ("cpp", "int x;\ntemplate <typename T\nstruct A {\n  T a;\n};\n", 2),
    ("cpp", "template <class K>\nstruct A : B<K {\n  int a;\n};\n", 2),
    ("cpp", "template <class K>\nstruct A : B<K> {\n  int a;\n}\ninline bool f(int a);\n", 4),
    ("cpp", "namespace a\n\nclass B {\n  int x;\n};\n\n}\n", 1),
    ("c", "int x;\n<<<<<<< HEAD\nint y;\n=======\nint z;\n>>>>>>> other\n", 2),
    ("markdown", "# A\n\nb\n<<<<<<< HEAD\nc\n", 4),
    ("html", "<p>a</p>\n<<<<<<< HEAD\n<p>b</p>\n", 2),
    ("css", "a { b: c; }\n<<<<<<< HEAD\nd { e: f; }\n", 2),
    ("sql", "SELECT 1;\n<<<<<<< HEAD\nSELECT 2;\n", 2),
    ("css", '@charset "utf-8"\n@import url("a.css");\n', 1),
    ("toml", 'a = [\n  "b",\n\n[c]\nd = 1\n', 3),
    ("shell", "cat <<END\na\nENDE\necho\n", 3),
    ("shell", 'for a in "${b[@]"; do\n  echo "$a"\ndone\n', 1),
    ("shell", "for a in b; do\n  c=$(d || true\n  echo\ndone\n", 2),
    ("cpp", "class A {\npublic\n  int x;\n};\n", 2),
]


@pytest.mark.parametrize(("form", "text"), RIGHT)
def test_what_is_newer_than_the_grammar_is_no_error(form: str, text: str) -> None:
    report = check(text, format_hint=form)
    assert report.valid is not False, report
    assert [problem for problem in report.errors if problem.severity == "error"] == []
    if form in ("json", "yaml", "toml", "xml"):
        assert (report.valid, report.errors) == (True, [])


@pytest.mark.parametrize(("form", "text"), RIGHT)
def test_what_the_grammar_cannot_read_is_not_refused_in_a_file_that_it_could_not_read_before(
    form: str, text: str
) -> None:
    report = check(text, format_hint=form)
    assert regressions(report, report) == []
    assert regressions(None, report) == []


@pytest.mark.parametrize(("form", "text", "line"), WRONG)
def test_what_is_wrong_beside_it_is_found(form: str, text: str, line: int) -> None:
    report = check(text, format_hint=form)
    assert report.valid is (False if report.level == "exact" else None)
    assert abs(report.errors[0].line - line) <= 4


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


def test_python_that_the_grammar_reads_is_only_doubted() -> None:
    """No version compiles this, as if it were the syntax of a later one."""
    report = check("print 'a'\n", format_hint="python")
    assert (report.valid, report.errors[0].severity) == (None, "warning")
    assert check("if a:\n    b\n  c\n", format_hint="python").valid is False
