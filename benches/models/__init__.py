"""Whole models, each the same program in every library, with random weights: what users run, rather
than one op. `python -m benches --models` measures them, with first calls and peak memory.
"""

from __future__ import annotations

from . import language, recurrent, science, vision

WORKLOADS = [
    *language.WORKLOADS,
    *vision.WORKLOADS,
    *recurrent.WORKLOADS,
    *science.WORKLOADS,
]
