"""Fixtures and helpers of all test modules."""

from __future__ import annotations

import gc
import os
import re
import signal

# A shell starts jobs in the background with interrupts ignored, and programs inherit this.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Counts of compilations must not depend on the disk cache of an earlier run.
os.environ["GIRIH_CACHE"] = "0"

import girih as gr
import numpy as np
import pytest

DTYPES = {
    "bool": gr.bool_,
    "int8": gr.int8,
    "int16": gr.int16,
    "int32": gr.int32,
    "int64": gr.int64,
    "uint8": gr.uint8,
    "uint16": gr.uint16,
    "uint32": gr.uint32,
    "uint64": gr.uint64,
    "float16": gr.float16,
    "float32": gr.float32,
    "float64": gr.float64,
    "complex64": gr.complex64,
    "complex128": gr.complex128,
}
FLOATS = ["float16", "float32", "float64"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
#: Relative tolerance of one elementary function; float16 is rounded once, at the end.
RTOL = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


#: Tests that fail on another current device than the host's processor, with the reason. All other
#: tests pass with GIRIH_DEVICE=mock (``make test-mock``).
OF_THE_HOST = {
    "the current device is the host's processor": r"""
        test_devices.py
        test_array_api.py::test_devices
        test_array_api.py::test_inspection
        test_executor.py::test_configurations_have_the_seeds_defaults
        test_explain.py::test_the_transcript_in_the_documentation
        test_grad.py::.*Tensor.to_device
        test_guide.py::.*devices
        test_profile.py::test_devices_are_told_apart
        test_reference.py::test_every_example_prints
    """,
    "memory of others is a tensor's as it is only on the host": r"""
        test_compiled_calls.py::test_donated_arguments_are_overwritten
        test_compiled_calls.py::test_donated_memory_with_other_owners_is_not_overwritten
        test_foreign_arrays.py::test_memory_is_shared
        test_foreign_arrays.py::test_what_nobody_can_write_is_shared
        test_foreign_arrays.py::test_another_dtype_is_a_copy
        test_foreign_arrays.py::test_an_interface_may_hold_a_buffer
        test_interchange.py::test_arrays_
        test_interchange.py::test_from_dlpack_and_its_device
        test_interchange.py::test_memory_lives_as_long_as_either_side
        test_weights.py::test_memory_of_others
    """,
    "the mock's programs are in its memory, and not on disk": r"""
        test_backward.py::TestTracking::test_the_tape_is_freed_with_its_tensors
        test_executor.py::test_a_second_process_compiles_nothing
        test_executor.py::test_programs_that_compile_fast_are_not_stored
        test_executor.py::test_programs_bound_to_sizes_are_found_by_a_second_process
        test_robustness.py::test_a_variable_that_says_nothing_usable.*GIRIH_CACHE
    """,
    "the mock runs one program at a time": r"""
        test_streams.py::test_threads_do_not_wait_for_each_others_programs
    """,
}


def pytest_collection_finish(session):
    """Takes what exists before the tests out of later collections: hundreds of thousands of objects
    of libraries and test cases, through which each ``gc.collect()`` would go."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    if os.environ.get("GIRIH_DEVICE", "cpu").startswith("cpu"):
        return
    for reason, tests in OF_THE_HOST.items():
        pattern = re.compile("|".join(tests.split()))
        for item in items:
            if pattern.match(item.nodeid.removeprefix("tests/python/")):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def seeded():
    gr.manual_seed(0)


class Counters:
    """Differences of cache counters over a block: ``with Counters() as c: ...; c["runs"]``."""

    def __init__(self):
        self.start: dict[str, int] = {}
        self.end: dict[str, int] = {}

    def __enter__(self):
        self.start = gr.cache_stats()
        return self

    def __exit__(self, *_):
        self.end = gr.cache_stats()

    def __getitem__(self, name):
        return self.end[name] - self.start[name]


def close(got, want, rtol=1e-6, atol=0.0):
    """Asserts equal shape and dtype, and equal values up to a tolerance, with NaN equal to NaN."""
    got = got.numpy() if isinstance(got, gr.Tensor) else np.asarray(got)
    want = np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    if want.dtype.kind in "fc":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(got, want)


def peak_memory(function, *operands):
    """The peak memory of a call in bytes, beyond the memory in use before it; evaluates the
    operands first.
    """
    gr.eval(*operands)
    gr._girih.reset_peak_memory()
    before = gr.cache_stats()["memory_bytes"]
    gr.eval(function(*operands))
    return gr.cache_stats()["peak_memory_bytes"] - before


def sample(shape, dtype, seed=0, low=-4.0, high=4.0):
    """Random numbers of a dtype, determined by the seed."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in INTS:
        low = 0 if dtype.startswith("uint") else int(low)
        return np.asarray(rng.integers(low, int(high) + 1, shape), dtype)
    x = rng.random(shape) * (high - low) + low
    if dtype in COMPLEX:
        x = x + 1j * (rng.random(shape) * (high - low) + low)
    return np.asarray(x, dtype)
