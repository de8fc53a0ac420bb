"""Benchmarks of Girih and its peers: one module of workloads per group, measured and reported
alike.

    python -m benches            # everything; writes docs/benchmarks
    python -m benches --quick    # a few rows of each group
    python -m benches --only softmax --peers numpy,jax
    python -m benches --list

A workload is written once, over the operations of `peers.Library`, and runs in every installed
library. `measure` alternates the libraries sample by sample, so that a disturbance affects all of
them.
"""

import os

# Set this before NumPy is imported. By default, idle threads of OpenBLAS spin for 2 ** 26 cycles,
# 100 ms, and take a CPU from the library that is measured next.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "22")
