"""The sweep: ordinary single operations at all sizes, dtypes and layouts, beside the peers.

    python -m benches --sweep            # all rows; writes docs/benchmarks/sweep
    python -m benches --sweep --quick    # a row of each operation's smallest form
    python -m benches --sweep --only cumsum --peers numpy,torch
    python -m benches --sweep --list

The rows of the other modules are programs that somebody chose; those of the sweep are what users
write in the first hour, so that an operation that nobody looked at shows. Each module of this
package has the rows of some families as a table. `causes` asks `girih.explain` what the kernels of
a row are, `run` measures, `table` writes the report.
"""
