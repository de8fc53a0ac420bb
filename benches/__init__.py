"""Girih beside its peers: workloads in modules of a group each, measured and reported in one way.

    python -m benches            # everything; writes docs/benchmarks
    python -m benches --quick    # a few rows of each group
    python -m benches --only softmax --peers numpy,jax
    python -m benches --list

A workload is written once, over the operations of `peers.Library`, and is run by every library that
is installed. `measure` alternates them sample by sample, so that what disturbs one disturbs all.
"""

import os

# Before NumPy is imported. OpenBLAS' idle threads would spin for 2 ** 26 of their cycles, 100 ms,
# and take a CPU from the library that is measured next.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "22")
