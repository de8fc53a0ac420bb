"""The API reference (docs/reference): every public name has a complete entry, the examples run, and
the generator's output for pages and docstrings is correct.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.reference import entries, examples, pages, render, signatures, website  # noqa: E402


@pytest.fixture(scope="module")
def reference():
    return entries.Reference()


def test_every_public_name_has_a_summary_parameters_results_errors_and_an_example(reference):
    assert not entries.problems(reference)


def test_every_example_prints_what_the_page_says():
    # Use a process of its own, because examples set options, threads and seeds.
    run = [sys.executable, "-m", "scripts.reference", "--run"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def write(folder, topic, parameters="- x: A tensor.\n- axis, dim: Axes.\n"):
    (folder / "index.md").write_text("# Reference\n\nText.\n\n- [Topic](topic.md)\n")
    (folder / "parameters.md").write_text(f"# Parameters\n\n{parameters}")
    (folder / "topic.md").write_text(topic)
    return entries.Reference(folder)


TOPIC = """# Topic

- returns: A tensor.
- raises AxisError for axis, dim: There is no such axis.

## Functions

### exp

A note.

- x: Numbers.
- raises DTypeError: They are
  no numbers.

```python
>>> gr.exp([0.0])
tensor([1.], dtype=float32)
```

### sin

### flip
"""


def test_the_nearest_description_applies(tmp_path):
    made = write(tmp_path, TOPIC)
    exp, sin = made.entries["girih.exp"], made.entries["girih.sin"]
    assert exp.parameters == {"x": "Numbers."}
    assert sin.parameters == {"x": "A tensor."}
    assert exp.raises == {"DTypeError": "They are no numbers."}
    assert sin.raises == {}
    assert made.entries["girih.flip"].raises == {"AxisError": "There is no such axis."}
    assert exp.returns == sin.returns == "A tensor."
    lacking = [line for line in entries.problems(made) if "girih.sin " in line]
    assert lacking == ["topic.md:21: girih.sin lacks an example"]


def test_docstrings_that_a_summary_refers_to_and_base_classes_describe_what_it_does_not(reference):
    entry = reference.entries.__getitem__
    first, second = entry("girih.nn.MaxPool1d"), entry("girih.nn.AvgPool2d")
    assert not second.thing.doc.parameters
    assert second.parameters["stride"] == first.parameters["stride"] != ""
    assert second.raises == first.thing.doc.raises
    base, adam = entry("girih.optim.Optimizer"), entry("girih.optim.Adam")
    assert adam.parameters["maximize"] == base.thing.doc.parameters["maximize"]
    fractional = entry("girih.nn.functional.fractional_max_pool3d")
    assert "ratio" in fractional.parameters["output_ratio"]


def test_unknown_names_and_undocumented_names_are_reported(tmp_path):
    found = entries.problems(write(tmp_path, TOPIC + "\n### frobnicate\n"))
    assert "topic.md:25: there is no girih.frobnicate" in found
    assert any(line.startswith("girih.cos is on no page") for line in found)
    # A function with several names needs one entry.
    assert not any("girih.exp " in line for line in found)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("Text without a title.\n", "begins with its title"),
        (TOPIC.replace("- x: Numbers.", "- x: Numbers.\n- x: More."), "says x twice"),
        (TOPIC + "\n```python\n>>> 1\n```\n\n```python\n>>> 2\n```\n", "two examples"),
        (TOPIC + "\n### exp\n", "girih.exp is at"),
    ],
)
def test_malformed_pages_are_errors(tmp_path, broken, message):
    with pytest.raises(pages.PageError, match=message):
        write(tmp_path, broken)


def test_a_page_that_the_index_does_not_link_is_an_error(tmp_path):
    (tmp_path / "other.md").write_text("# Other\n")
    with pytest.raises(pages.PageError, match="other"):
        write(tmp_path, TOPIC)


def test_a_failing_example_is_reported_and_can_be_written_anew(tmp_path):
    wrong = TOPIC.replace("tensor([1.]", "tensor([2.]")
    made = write(tmp_path, wrong)
    entry = made.entries["girih.exp"]
    assert "Expected" in examples.run(entry.example, "exp", entry.where, 0)
    assert examples.update(tmp_path / "topic.md")
    assert (tmp_path / "topic.md").read_text() == TOPIC
    assert not examples.update(tmp_path / "topic.md")


@pytest.mark.parametrize(
    ("want", "got", "same"),
    [
        ("tensor([0.84147])", "tensor([0.84148])", True),
        ("tensor([0.84147])", "tensor([0.85])", False),
        ("tensor([ 1.,  2.])", "tensor([1., 2.])", True),
        ("[1, 2]", "[1, 3]", False),
        ("1.0", "-1.0", False),
        ("(2, 3)", "(2,)", False),
        ("True", "False", False),
        ("inf", "nan", False),
    ],
)
def test_outputs_are_compared_up_to_the_last_digits_of_floating_point_numbers(want, got, same):
    assert examples.Checker().check_output(want, got, 0) == same


def test_docstrings_are_taken_apart():
    doc = signatures.parse_doc(
        """Does a thing.

        More of it::

            x = 1

        Args:
            a: The first,
                on two lines.
            *rest: Others.

        Raises:
            ValueError: Never.

        Example:
            >>> 1
            1
        """
    )
    assert doc.summary == "Does a thing."
    assert doc.body == "More of it::\n\n    x = 1"
    assert doc.parameters == {"a": "The first, on two lines.", "rest": "Others."}
    assert doc.raises == {"ValueError": "Never."}
    assert doc.example == ">>> 1\n1"
    assert doc.returns == ""
    assert signatures.parse_doc("Gives it. Returns: `str`.").summary == "Gives it."


def test_signatures_have_types_of_the_stub_and_of_the_code():
    add = signatures.find("girih", "add")
    assert str(add.signatures[0]) == "(x1: TensorLike, x2: TensorLike, /) -> Tensor"
    assert len(signatures.find("girih", "where").signatures) == 2
    det = signatures.find("girih.linalg", "det")
    assert str(det.signatures[0]) == "(x: Any, /) -> Tensor"
    conv = signatures.find("girih.nn", "Conv1d").signatures[0].parameters
    assert repr(conv["kernel_size"].annotation) == "int | Sequence[int]"
    assert signatures.find("girih", "Tensor.shape").kind == "property"
    assert "shape" in signatures.find("girih", "Tensor.reshape").parameters
    assert signatures.find("girih", "ShapeError").kind == "exception"


def test_signatures_name_no_private_types(reference):
    for name, entry in reference.entries.items():
        for signature in entry.thing.signatures:
            text = re.sub(r"'[^']*'", "", str(signature))
            assert not re.search(r"(?<!\w)_(?!T\b)[A-Za-z]", text), (name, text)


def test_markup_of_restructured_text_is_escaped_outside_of_code():
    text = "a * b, `x * y`, ``c*d``, :func:`girih.add`, [page](../dtypes.md) and x_"
    assert render.inline(text) == (
        "a \\* b, `x * y`, ``c*d``, :func:`girih.add`, :doc:`page </notes/dtypes>` and x\\_"
    )


def test_methods_link_to_their_functions_and_aliases_are_listed(reference):
    made = render.render(reference)
    assert "Tensor.exp()" in made["tensor"]
    assert "See :py:func:`girih.exp`." in made["tensor"]
    assert "Also ``girih.nn.functional.relu``." in made["functional"]


def test_pages_of_the_guide_are_listed_in_order_and_new_ones_behind():
    there = {Path(name): Path("guide", name) for name in ("a.md", "new.md", "b.md")}
    text = "guide/b\nguide/gone\nguide/a\nguide/...\nproject/*\n"
    assert website.listed(text, there) == "guide/b\nguide/a\nguide/new\nproject/*\n"


def test_links_of_pages_are_adapted_and_those_that_lead_nowhere_reported(tmp_path):
    at = website.places(ROOT)
    broken: list[str] = []
    page = ROOT / "README.md"
    text = "[a](docs/ops.md#exp) [b](Makefile) [c](nowhere.md) [d](https://example.org)"
    picture = "![p](docs/benchmarks/cpu.svg)"
    assert website.relinked(picture, page, at, []) == "![p](../benchmarks/cpu.svg)"
    assert website.relinked(text, page, at, broken) == (
        "[a](../notes/ops.md#exp) `b` `c` [d](https://example.org)"
    )
    assert broken == [f"{page}: nowhere.md does not exist"]
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html"><a href="#x"><a href="#y">')
    assert sorted(website.broken_links(tmp_path)) == [
        "a.html: #y names no anchor",
        "a.html: b.html leads nowhere",
    ]
