"""Settings of the documentation's site, which `make docs-site` builds."""

project = "Girih"
author = "the Girih authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Girih"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False

# A link to what does not exist is a warning, and warnings are errors.
nitpicky = True
# Types of Python and of other libraries, whose pages the build does not fetch.
nitpick_ignore_regex = [("py:(class|exc)", r"(?!girih).*")]
# The name `type` in a signature is Python's, and attributes of several classes are called so.
suppress_warnings = ["ref.python"]

# `x` in a docstring is code.
default_role = "code"
highlight_language = "python"
myst_heading_anchors = 4

add_module_names = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
