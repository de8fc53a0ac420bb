"""The Python API reference and the documentation's site.

``pages`` reads docs/reference, ``signatures`` looks at the package, ``entries`` joins both and says
what is missing, ``render`` writes pages for Sphinx, ``examples`` runs the examples and ``website``
builds the site and checks its links.
"""
