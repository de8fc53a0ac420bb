"""Girih beside its peers: workloads in modules of a group each, measured and reported in one way.

    python -m benches            # everything; writes docs/benchmarks
    python -m benches --quick    # a few rows of each group
    python -m benches --only softmax --peers numpy,jax
    python -m benches --list

A workload is written once, over the operations of `peers.Library`, and is run by every library that
is installed. `measure` alternates them sample by sample, so that what disturbs one disturbs all.
"""
