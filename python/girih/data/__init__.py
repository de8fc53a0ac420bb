"""Batches of data for training: shuffled, prepared ahead in a thread, and counted by a bar.

    loader = gr.data.DataLoader((images, labels), batch_size=64, shuffle=True)
    for epoch in range(10):
        for x, y in gr.data.progress(loader, f"epoch {epoch + 1}"):
            loss = step(x, y)

A loader goes over arrays, which are cut in one piece, over anything with ``len`` and ``[i]``, and
over iterables.
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
