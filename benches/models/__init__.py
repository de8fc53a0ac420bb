"""Whole models with random weights, each the same program in every library: what users run instead
of single ops. `python -m benches --models` measures them, with first calls and peak memory.
"""

from __future__ import annotations

from . import language, recurrent, science, vision

WORKLOADS = [
    *language.WORKLOADS,
    *vision.WORKLOADS,
    *recurrent.WORKLOADS,
    *science.WORKLOADS,
]
