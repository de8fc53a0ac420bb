"""Data loading for training: batching, shuffling, prefetching in a thread, and a progress bar.

    loader = gr.data.DataLoader((images, labels), batch_size=64, shuffle=True)
    for epoch in range(10):
        for x, y in gr.data.progress(loader, f"epoch {epoch + 1}"):
            loss = step(x, y)

A loader iterates over arrays, which it slices batch by batch, over objects with ``len`` and
``[i]``, and over iterables.
"""

from __future__ import annotations

from .bar import Progress, progress
from .loading import DataLoader, batched, collate, prefetched, shuffled

__all__ = [
    "DataLoader",
    "Progress",
    "batched",
    "collate",
    "prefetched",
    "progress",
    "shuffled",
]
