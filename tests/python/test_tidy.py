"""Rules for the tree: layers of crates, file headers, and the table of requirements."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SECTION = re.compile(r"^## ([A-Z]+)-01\.\.(\d+): ", re.M)
ROW = re.compile(
    r"^\| ([A-Z]+)-(\d+)([a-z]?)(?:\.\.(\d+)([a-z]?))? \| (.*?) \| (\w+) \| (.*?) ?\|$"
)


def rows():
    text = (ROOT / "docs" / "seeds.md").read_text()
    lines = [line for line in text.splitlines() if re.match(r"\| [A-Z]+-", line)]
    found = [ROW.match(line) for line in lines]
    assert all(found), [line for line, row in zip(lines, found, strict=True) if not row]
    return text, [row.groups() for row in found if row]


@cache
def names_in(path: str) -> set[str]:
    text = (ROOT / path).read_text()
    if path.endswith(".py"):
        return set(re.findall(r"^ *def (test_\w+)", text, re.M))
    if path.startswith("crates/conformance/src/"):
        # Checks of the conformance suite, which each device runs as tests.
        suite = (ROOT / "crates/conformance/src/lib.rs").read_text()
        checks = re.findall(r"^pub fn (\w+)\(subject: &Subject\)", text, re.M)
        return {check for check in checks if re.search(rf"\b{check}\b", suite)}
    # After the attribute, or in the body of proptest!, which has the attribute, too.
    return set(re.findall(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn (\w+)", text))


def test_every_id_has_one_row():
    text, table = rows()
    for prefix, last in SECTION.findall(text):
        numbers: list[int] = []
        letters: dict[int, str] = {}
        for of, first, letter, to, to_letter, *_ in table:
            if of != prefix:
                continue
            if letter:
                end = to_letter or letter
                assert int(to or first) == int(first)
                span = "".join(chr(c) for c in range(ord(letter), ord(end) + 1))
                letters[int(first)] = letters.get(int(first), "") + span
            else:
                numbers += range(int(first), int(to or first) + 1)
        for number, found in letters.items():
            # An id with parts has all of them, in order.
            assert found == "abcdefghijklmnopqrstuvwxyz"[: len(found)], f"{prefix}-{number}{found}"
            numbers.append(number)
        assert sorted(numbers) == list(range(1, int(last) + 1)), prefix
    assert {row[0] for row in table} == {prefix for prefix, _ in SECTION.findall(text)}


def test_every_requirement_that_is_done_names_tests_that_exist():
    _, table = rows()
    for prefix, first, letter, *_, state, shown in table:
        name = f"{prefix}-{first}{letter}"
        assert state in ("done", "partial", "open", "declined"), name
        references = re.findall(r"`([^`]+)::(\w+)`", shown)
        for path, test in references:
            assert test in names_in(path), f"{name}: there is no {test} in {path}"
        if state in ("done", "partial"):
            assert references, f"{name} names no test"
        else:
            assert not references, f"{name} is {state} but names a test"
        if state == "partial":
            assert "missing: " in shown, f"{name}: what is missing?"
        if state == "declined":
            assert shown, f"{name}: why?"


# The crates of this project that the code of each crate may depend on; tests may use more.
LAYERS = {
    "sync": set(),
    "linalg": set(),
    "derive": set(),
    "ir": set(),
    "reference": {"ir", "linalg"},
    "transform": {"ir"},
    "dist": {"ir"},
    "opt": {"ir", "dist"},
    "kernel": {"ir", "opt"},
    "exec": {"ir", "kernel", "linalg", "reference"},
    "runtime": {"ir", "opt", "dist"},
    "compile": {"ir", "opt", "dist", "kernel", "runtime"},
    "mock": {"ir", "runtime"},
    "conformance": {"ir", "mock", "reference", "runtime"},
    "cpu": {"ir", "kernel", "compile", "exec", "linalg", "opt", "runtime"},
    "record": {"ir", "opt", "transform", "dist", "compile", "runtime", "cpu", "mock"},
    "csl": set(),
    "fabric": {"csl"},
    "wse": {"ir", "opt", "kernel", "compile", "dist", "runtime", "csl", "fabric"},
    "cuda": {"ir", "opt", "kernel", "compile", "runtime"},
    "cli": {"girih"},
    # What front ends in Python share knows no tensors of users, and no ops by NumPy's names.
    "pyo3": {"ir", "record", "runtime", "transform"},
    "python": {"girih", "cli", "pyo3"},
}


def manifests():
    return sorted((ROOT / "crates").glob("*/Cargo.toml"))


def test_crates_without_examples_start_no_rustdoc_for_them():
    """Each crate with tests of its documentation takes seconds of the test run."""
    for manifest in manifests():
        sources = (manifest.parent / "src").rglob("*.rs")
        has = any(re.search(r"^\s*//[/!] ```", path.read_text(), re.M) for path in sources)
        assert has != ("doctest = false" in manifest.read_text()), manifest


def test_layers_depend_one_way():
    for manifest in manifests():
        layer = manifest.parent.name
        table = manifest.read_text().partition("[dependencies]\n")[2].partition("\n[")[0]
        names = re.findall(r"^(girih[a-z0-9-]*)", table, re.M)
        ours = {name.removeprefix("girih-") for name in names}
        # The crate of locks is below all other crates.
        ours.discard("sync")
        if layer == "girih":
            # The facade is above all crates except the front ends.
            assert not ours & {"cli", "python", "pyo3"}
        else:
            assert ours <= LAYERS[layer], f"{layer} must not know {ours - LAYERS[layer]}"


def test_the_host_is_named_in_one_module():
    naming = [
        path.relative_to(ROOT).as_posix()
        for crate in ("girih", "record")
        for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))
        if re.search(r"\bgirih_cpu::", path.read_text())
    ]
    assert naming == ["crates/record/src/cpu.rs"]
    manifest = (ROOT / "crates/record/Cargo.toml").read_text()
    production = manifest.partition("[dependencies]\n")[2].partition("\n[")[0]
    assert "girih-mock = { workspace = true, optional = true }" in production


def test_the_modules_of_the_recording_engine_form_no_circle():
    """A module uses only modules that the list in `lib.rs` has before it."""
    root = ROOT / "crates/record/src"
    listed = (root / "lib.rs").read_text().partition("uses only modules before it:")[2]
    order = re.findall(r"`(\w+)`", listed.partition("#![")[0])
    modules = set(re.findall(r"^(?:pub )?mod (\w+);", (root / "lib.rs").read_text(), re.M))
    assert sorted(order) == sorted(modules - {"testing"})
    for path in sorted(root.rglob("*.rs")):
        module = path.relative_to(root).parts[0].removesuffix(".rs")
        if module in ("lib", "testing"):
            continue
        code = re.sub(r"//.*", "", path.read_text().partition("#[cfg(test)]")[0])
        used = set(re.findall(r"\bcrate::(\w+)", code))
        for group in re.findall(r"\bcrate::\{([^;]*)\};", code):
            used |= set(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"::\{[^{}]*\}", "", group)))
        above = {name for name in used if order.index(name) > order.index(module)}
        assert not above, f"{path}: {module} is below {above}"


def test_the_host_is_the_target_of_its_own_code_generator_only():
    """Other crates take a target; tests may take the host's."""
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        name = path.relative_to(ROOT / "crates").as_posix()
        code = path.read_text().partition("#[cfg(test)]")[0]
        is_test = "/tests" in name or name.startswith("cpu/") or name == "kernel/src/target.rs"
        assert is_test or "Target::CPU" not in code.replace("DecompositionTarget::CPU", ""), name


# For modules of the runtime, from the device up: the names that they must not use. Streams lower
# operations to primitives; modules below streams do not use operations, and streams use the
# scheduler only through their queues.
OPERATIONS = r"\b(Operation|Step|ExecutionPlan|TiledPlan|TileOptions|CopyArguments)\b"
UNKNOWN = {
    "device": OPERATIONS + r"|\b(Scheduler|DeviceQueue|Stream)\b",
    "primitive": OPERATIONS + r"|\b(Scheduler|DeviceQueue|Stream)\b",
    "policy": OPERATIONS,
    "queue": OPERATIONS + r"|\bStream\b",
    "scheduler": OPERATIONS + r"|\bStream\b",
    "scheduler/state": OPERATIONS + r"|\bStream\b",
    "stream": r"\.scheduler\(\)",
}


def test_layers_of_the_runtime():
    for module, unknown in UNKNOWN.items():
        text = (ROOT / "crates/runtime/src" / f"{module}.rs").read_text()
        code = re.sub(r"//.*", "", text.partition("#[cfg(test)]")[0])
        assert not re.findall(unknown, code), module
    # One way to the device: streams lower operations to primitives and submit them.
    below = {"primitive", "progress", "queue", "scheduler", "state", "outstanding", "run"}
    for file in (ROOT / "crates/runtime/src").rglob("*.rs"):
        if file.stem in below:
            continue
        code = re.sub(r"//.*", "", file.read_text().partition("#[cfg(test)]")[0])
        submits = re.findall(r"\bSubmission\b|\.submit_and_wait\(|Lowering::new", code)
        assert not submits or file.stem in {"stream", "step", "lowering", "tests", "testing"}, file
        blocks = re.findall(r"ControlBlock::\w+ *[{(]", code)
        assert not blocks or file.stem in {"lowering", "tests", "testing"}, file
    # The operations of a queue.
    text = (ROOT / "crates/runtime/src/queue.rs").read_text()
    queue = text.partition("impl DeviceQueue {")[2].partition("\n}\n")[0]
    assert set(re.findall(r"^    pub fn (\w+)", queue, re.M)) == {
        *("new", "with_priority", "index", "device", "scheduler"),
        *("copy_to_device", "copy_from_device", "copy_on_device", "launch"),
        *("record", "enqueue_record", "wait", "enqueue_wait"),
        *("query", "wait_for_room", "synchronize"),
    }


def test_every_file_of_a_test_program_is_run():
    programs = sorted((ROOT / "crates").glob("*/tests/*/main.rs"))
    assert len(programs) > 3
    for program in programs:
        modules = set(re.findall(r"^mod (\w+);", program.read_text(), re.M))
        assert {file.stem for file in program.parent.glob("*.rs")} == modules | {"main"}, program


def test_every_golden_file_is_compared_by_a_test_of_its_crate():
    for crate in sorted(path.parents[1] for path in (ROOT / "crates").glob("*/tests/golden")):
        text = "".join(path.read_text() for path in crate.rglob("*.rs"))
        for file in (crate / "tests/golden").rglob("*.*"):
            assert re.search(rf'["/]{file.stem}["./]', text), file


def test_every_process_wide_test_holds_the_lock():
    for file in (ROOT / "crates/girih/tests/process").glob("*.rs"):
        tests = re.findall(r"#\[test\]\nfn (\w+)\(.*\{\n(.*)", file.read_text())
        unlocked = [name for name, first in tests if not re.search(r"alone\(\)|seeded\(", first)]
        assert not unlocked, file


def test_every_crate_has_its_paragraph():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for manifest in manifests():
        assert f"**`crates/{manifest.parent.name}`**" in text


def exported_parameters(source: str) -> list[tuple[str, str]]:
    """The parameters of the functions and methods that PyO3 exports: name and declaration."""
    bodies = []
    for block in re.finditer(r"#\[pymethods\]\s*impl[^{]*\{", source):
        depth, end = 1, block.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        bodies.append((block.end(), end))
    found = []
    for function in re.finditer(r"\bfn\s+(\$?\w+)\s*(?:<[^(]*>)?\(", source):
        before = source[: function.start()]
        exported = "#[pyfunction]" in before[max(before.rfind("\n}"), 0) :]
        if not exported and not any(a <= function.start() < b for a, b in bodies):
            continue
        parts, depth = [""], 0
        for character in source[function.end() :]:
            depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(character, 0)
            if depth < 0:
                break
            if character == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += character
        found += [(function[1], " ".join(part.split())) for part in parts if ":" in part]
    return found


# Types whose conversion by PyO3 raises errors that are not this package's.
SCALAR = r"(?:bool|f64|f32|[iu](?:8|16|32|64|128|size)|&str|String|PathBuf|&\[u8\])"


EXTENSION = [
    path
    for crate in ("python", "pyo3")
    for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))
]


@pytest.mark.parametrize("path", EXTENSION, ids=str)
def test_parameters_from_python_are_checked_and_sequences_are_bounded(path: Path):
    wrong = []
    for function, declaration in exported_parameters(path.read_text()):
        kind = re.sub(r"^(?:#\[[^\]]*\] )*\$?\w+: ", "", declaration)
        sequence = re.match(r"(?:Option<)?(?:Vec|SmallVec|HashMap|BTreeMap|\[)", kind)
        scalar = re.fullmatch(rf"{SCALAR}|Option<{SCALAR}>", kind)
        pair = re.match(r"(?:Option<)?\(", kind) and not function.startswith("__")
        # Internal functions of compiled calls take tuples that this package has made.
        internal = path.name in ("call.rs", "guards.rs", "contexts.rs")
        if (sequence or scalar or (pair and not internal)) and "from_py_with" not in declaration:
            wrong.append(f"{function}: {declaration}")
    # Sequences are read by crates/pyo3/src/sequences.rs, scalars by scalars.rs.
    assert wrong == []


def test_a_parameter_that_is_not_checked_is_found():
    source = (
        "}\n#[pyfunction]\nfn f(py: Python<'_>, #[pyo3(from_py_with = a)] x: bool, y: Vec<u8>) {"
    )
    assert [d.split(": ")[-1] for _, d in exported_parameters(source)] == [
        "Python<'_>", "bool", "Vec<u8>",
    ]  # fmt: skip


def test_every_file_says_what_it_is_for():
    for path in (ROOT / "crates").rglob("*.rs"):
        if path.name == "tests.rs":
            # The tests of the module next to it.
            continue
        assert path.read_text().startswith(("//!", "#![")), path
    for folder in ("python", "tests", "scripts", "benches", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            text = text.split("\n", 1)[1] if text.startswith("#!") else text
            assert text.startswith(('"""', 'r"""')), path


def test_every_environment_variable_is_on_the_page():
    """The environment variables in the sources are those on the documentation page."""
    page = (ROOT / "docs" / "environment.md").read_text()
    documented = set(re.findall(r"^\| `(GIRIH_\w+)` \|", page, re.M))
    assert len(documented) == page.count("\n| `GIRIH_"), "a variable has two rows"
    names = re.compile(r"\bGIRIH_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
    found: dict[str, str] = {}
    suffixes = {".rs", ".py", ".sh", ".pyi"}
    for folder in ("crates", "python", "scripts", "benches", "examples", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in suffixes:
                for name in names.findall(path.read_text()):
                    found.setdefault(name, str(path.relative_to(ROOT)))
    missing = {name: path for name, path in found.items() if name not in documented}
    assert not missing, "read here, and not in docs/environment.md"
    assert documented <= found.keys(), "in docs/environment.md, and read nowhere"


@pytest.mark.parametrize(
    ("source", "enum", "title"),
    [
        ("crates/kernel/src/fuse/refusal.rs", "Refusal", "Reasons not to fuse"),
        ("crates/cpu/src/bottleneck.rs", "Cause", "Bottlenecks"),
    ],
)
def test_every_code_of_an_explanation_is_on_its_page(source: str, enum: str, title: str):
    codes = re.findall(rf'{enum}::\w+(?: {{ \.\. }})? => "(\w+)",', (ROOT / source).read_text())
    page = (ROOT / "docs" / "explain.md").read_text().partition(f"## {title}\n")[2]
    assert codes
    assert codes == re.findall(r"^\| `(\w+)` \|", page.partition("\n## ")[0], re.M)


# docs/internals: the names on these pages must exist in the tree.

PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
#: Top-level items as rustfmt formats them: a header, and a body that ends with a brace in the first
#: column.
BLOCK = re.compile(
    r"^(?:pub(?:\([^)]*\))? )?(?:unsafe )?((?:impl|trait|enum|struct)\b[^{;]*)\{\n(.*?)^\}",
    re.M | re.S,
)
RUST = r"fn|struct|enum|trait|type|const|static|mod|macro_rules!"
DEFINED = re.compile(rf"\b(?:{RUST}|def|class)\s+(\w+)")


@cache
def sources() -> dict[Path, str]:
    files = [*(ROOT / "crates").rglob("*.rs"), *(ROOT / "python").rglob("*.py")]
    return {path: path.read_text() for path in files}


@cache
def defined() -> set[str]:
    """The names of functions, types, constants, modules and macros, and the variants of enums."""
    names: set[str] = set()
    for path, text in sources().items():
        names.update(DEFINED.findall(text), [path.stem])
        for header, body in BLOCK.findall(text):
            if header.startswith("enum"):
                names.update(re.findall(r"^    ([A-Z]\w*)\b", body, re.M))
    # The rows of the op registry and of the table of passes are variants, too.
    for table in ("ir/src/ops/mod.rs", "ir/src/ops/table.rs", "opt/src/options.rs"):
        text = sources()[ROOT / "crates" / table]
        names.update(re.findall(r"^    (?:\w+ \w+ )?([A-Z]\w*)\b", text, re.M))
    return names


@cache
def members() -> dict[str, set[str]]:
    """For each type, its methods, fields, variants and constants; for each module, the items of its
    file.
    """
    found: dict[str, set[str]] = {}
    member = re.compile(
        r"\b(?:fn|const|type) (\w+)|^    (?:pub(?:\([^)]*\))? )?(\w+)\s*[:,({]", re.M
    )
    for path, text in sources().items():
        module = path.parent.name if path.stem in ("mod", "lib") else path.stem
        found.setdefault(module, set()).update(DEFINED.findall(text))
        for header, body in BLOCK.findall(text):
            names = {a or b for a, b in member.findall(body)}
            for of in re.findall(r"\w+", header):
                found.setdefault(of, set()).update(names)
    return found


def unknown(code: str) -> bool:
    """Whether text in backticks looks like a name in the sources and does not exist."""
    code = code.removesuffix("()")
    if re.search(r"/mine\b|\bMy[A-Z]", code):
        # A placeholder for a name that the reader chooses.
        return False
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?|[\w-]+\.(md|rs|py|toml|pyi)", code):
        return not (ROOT / code).exists()
    if re.fullmatch(r"\w+(::\w+)+!?", code):
        *_, of, name = code.removesuffix("!").split("::")
        return name not in members().get(of, set()) and f"{of}::{name}" not in tables()
    if code.startswith("GIRIH_"):
        return f"`{code}`" not in (ROOT / "docs" / "environment.md").read_text()
    return code.removesuffix("!") not in defined()


@cache
def tables() -> set[str]:
    """The variants that macros generate from tables."""
    made = (("OpCode", "ir/src/ops/mod.rs"), ("PassFlag", "opt/src/options.rs"))
    rows = re.compile(r"^    ([A-Z]\w*) = ", re.M)
    found = {
        f"{of}::{row}" for of, at in made for row in rows.findall(sources()[ROOT / "crates" / at])
    }
    table = sources()[ROOT / "crates/ir/src/ops/table.rs"]
    return found | {
        f"OpCode::{row}" for row in re.findall(r"^        \w+ \w+ ([A-Z]\w*)", table, re.M)
    }


def named(page: str) -> set[str]:
    """The names on a page: calls, paths and types in backticks; in pictures, paths and
    `Type::method`.
    """
    pictures = " ".join(FENCE.findall(page))
    inline = re.findall(r"`([^`\n]+)`", FENCE.sub("", page))
    shapes = (
        r"[\w./-]+/[\w.-]+/?|[\w-]+\.(?:md|rs|py|toml|pyi)|\w+(?:::\w+)+!?(?:\(\))?|\w+(?:\(\)|!)"
    )
    types = r"[A-Z]\w+"
    found = {code for code in inline if re.fullmatch(f"{shapes}|{types}", code)}
    return found | set(
        re.findall(r"\b(?:crates|python|docs|tests)/[\w./-]+\w|\b\w+(?:::\w+)+", pictures)
    )


def test_internals_name_what_is_in_the_tree():
    assert PAGES
    missing = {}
    for page in PAGES:
        found = sorted(code for code in named(page.read_text()) if unknown(code))
        if found:
            missing[page.name] = found
    assert not missing, "docs/internals names what the sources do not have"


def test_a_name_that_the_sources_do_not_have_is_found():
    there = ("crates/ir/src/graph.rs", "Graph::encode", "OpCode::Add", "place::place", "lower()")
    assert not [code for code in there if unknown(code)]
    gone = ("crates/ir/src/grpah.rs", "Graph::encoed", "OpCode::Adn", "place::plcae", "lwoer()")
    assert all(unknown(code) for code in gone)
    text = "`gone()` and `Type::gone`\n```text\nA::gone, crates/gone.rs\n```\n`a word`"
    assert named(text) == {"gone()", "Type::gone", "A::gone", "crates/gone.rs"}


def test_internals_are_all_in_the_index_and_on_the_site():
    index = (ROOT / "docs" / "internals" / "index.md").read_text()
    site = (ROOT / "docs" / "site" / "index.md").read_text()
    for page in PAGES:
        assert page.name == "index.md" or f"]({page.name})" in index, page.name
        assert f"\ninternals/{page.stem}\n" in site, page.name


def prose() -> str:
    """The Rust sources in lower case, with wrapped comments on one line."""
    rust = [text.lower() for path, text in sources().items() if path.suffix == ".rs"]
    return re.sub(r"\s*\n\s*(?:///|//!|//)?\s*", " ", "\n".join(rust))


def test_terms_of_the_glossary_are_used_and_words_they_replace_are_not() -> None:
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("## Glossary")[2]
    terms = re.findall(r"^\| ([^|]+) \|", glossary, re.M)[2:]
    terms = [term.strip() for row in terms for term in row.split(",")]
    replaced = re.search(r"^Replaced words: (.*)\.$", glossary, re.M)
    assert replaced is not None
    assert len(terms) > 30
    text = prose()
    used = lambda word: re.search(rf"\b{re.escape(word.lower())}s?\b", text) is not None
    assert [term for term in terms if not used(term)] == []
    assert [word for word in replaced[1].split(", ") if used(word)] == []


# A public function that takes a bool among others says nothing at the call. Setters do, and these.
FLAGS = {"set_enabled", "maximize", "reduced", "set"}


def bare_bools(text: str):
    """The public functions of Rust code with a bool among their parameters."""
    functions = r"^ *pub fn (\w+)(?:<[^{(]*>)?\(([^{]*?)\)(?: ->|\s*(?:where|\{))"
    for name, parameters in re.findall(functions, text, re.M):
        flags = re.findall(r"\w+: (?:Option<)?[\[(]?bool\b", parameters)
        others = [p for p in parameters.split(",") if ": " in p]
        setter = name in FLAGS or name.startswith(("set_", "with_"))
        if flags and not (setter and len(others) == 1):
            yield name


def test_public_functions_of_the_rust_library_take_no_bare_bools():
    # Modules that are not public, whose functions the others call.
    internal = {"control.rs", "display/digits.rs"}
    source = ROOT / "crates" / "girih" / "src"
    found = {
        str(path.relative_to(source)): names
        for path in source.rglob("*.rs")
        if (names := list(bare_bools(path.read_text())))
    }
    assert set(found) <= internal, "a builder or an enum says at the call what is meant"


def test_bare_bools_are_found():
    text = """
    pub fn window(self, size: usize, periodic: bool) -> Result<Tensor> {
    pub fn set_eager(&self, on: bool) {
    pub fn set_both(&self, a: bool, b: bool) {
    pub fn pads<const N: usize>(
        sides: [bool; N],
    ) -> Result<Tensor> {
    fn private(on: bool) {
    """
    assert list(bare_bools(text)) == ["window", "set_both", "pads"]
