"""Convolutions, poolings and interpolation in NumPy, element by element."""

from __future__ import annotations

import itertools
import math

import numpy as np


def listed(value, n):
    return list(value) if isinstance(value, (tuple, list)) else [value] * n


def pairs(padding, n):
    return [p if isinstance(p, tuple) else (p, p) for p in listed(padding, n)]


def conv(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    n = w.ndim - 2
    stride, dilation, padding = listed(stride, n), listed(dilation, n), pairs(padding, n)
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    kernel = w.shape[2:]
    out = [(x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(n)]
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    channels, outputs = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        group = slice(o // outputs * channels, (o // outputs + 1) * channels)
        for at in itertools.product(*map(range, out)):
            window = tuple(
                slice(p * s, p * s + d * (k - 1) + 1, d)
                for p, s, d, k in zip(at, stride, dilation, kernel, strict=True)
            )
            y[(slice(None), o, *at)] = (x[(slice(None), group, *window)] * w[o]).sum(tuple(range(1, n + 2)))  # fmt: skip
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


def conv_transpose(x, w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    n = w.ndim - 2
    stride, dilation, padding = listed(stride, n), listed(dilation, n), pairs(padding, n)
    extra, kernel = listed(output_padding, n), w.shape[2:]
    full = [(x.shape[2 + i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(n)]  # fmt: skip
    y = np.zeros((x.shape[0], w.shape[1] * groups, *full), x.dtype)
    channels, outputs = x.shape[1] // groups, w.shape[1]
    for c in range(x.shape[1]):
        group = slice(c // channels * outputs, (c // channels + 1) * outputs)
        for at in itertools.product(*map(range, x.shape[2:])):
            window = tuple(
                slice(p * s, p * s + d * (k - 1) + 1, d)
                for p, s, d, k in zip(at, stride, dilation, kernel, strict=True)
            )
            value = x[(slice(None), c, *at)]
            y[(slice(None), group, *window)] += value.reshape(-1, *[1] * (n + 1)) * w[c]
    y = y[(..., *[slice(lo, y.shape[2 + i] - hi) for i, (lo, hi) in enumerate(padding)])]
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


def pool(x, reduce, size, stride=None, padding=0, dilation=1, ceil_mode=False, whole=False):
    """The elements of each window without padding; with ``whole``, padding counts as zeros."""
    n = len(listed(size, 1)) if isinstance(size, (tuple, list)) else x.ndim - 2
    size = listed(size, n)
    stride = size if stride is None else listed(stride, n)
    padding, dilation = pairs(padding, n), listed(dilation, n)
    spatial = x.shape[-n:]
    counts = []
    for i in range(n):
        low, high = padding[i]
        rest = spatial[i] + low + high - dilation[i] * (size[i] - 1) - 1
        count = (-(-rest // stride[i]) if ceil_mode else rest // stride[i]) + 1
        if ceil_mode and (count - 1) * stride[i] >= spatial[i] + low:
            count -= 1
        counts.append(count)
    y = np.zeros((*x.shape[:-n], *counts), x.dtype)
    for at in itertools.product(*map(range, counts)):
        index, padded = [], 1
        for i in range(n):
            places = [at[i] * stride[i] - padding[i][0] + k * dilation[i] for k in range(size[i])]
            index.append([p for p in places if 0 <= p < spatial[i]])
            padded *= len([p for p in places if p < spatial[i] + padding[i][1]])
        window = x[(..., *np.ix_(*index))]
        values = window.reshape(*x.shape[:-n], math.prod(map(len, index)))
        y[(..., *at)] = values.sum(-1) / padded if whole else reduce(values, -1)
    return y


def adaptive(x, reduce, sizes):
    n = len(sizes)
    y = np.zeros((*x.shape[:-n], *sizes), x.dtype)
    for at in itertools.product(*map(range, sizes)):
        window = tuple(
            slice(i * size // count, -(-(i + 1) * size // count))
            for i, size, count in zip(at, x.shape[-n:], sizes, strict=True)
        )
        values = x[(..., *window)]
        y[(..., *at)] = reduce(values, tuple(range(-n, 0)))
    return y


def resample_axis(x, axis, count, weights):
    """``weights(i)`` returns pairs of index and weight."""
    x = np.moveaxis(x, axis, -1)
    size = x.shape[-1]
    y = np.stack(
        [sum(x[..., min(max(j, 0), size - 1)] * w for j, w in weights(i)) for i in range(count)], -1
    )
    return np.moveaxis(y, -1, axis)


def interpolate(x, sizes, mode, align_corners=False, scales=None):
    for a, count in enumerate(sizes):
        size = x.shape[2 + a]
        ratio = 1 / scales[a] if scales else size / count

        def position(i, size=size, count=count, ratio=ratio):
            if align_corners:
                return i * (size - 1) / (count - 1) if count > 1 else 0.0
            return (i + 0.5) * ratio - 0.5

        def linear(i, position=position):
            at = max(position(i), 0.0)
            low = int(np.floor(at))
            return [(low, 1 - (at - low)), (low + 1, at - low)]

        def cubic(i, position=position):
            at, a = position(i), -0.75
            low = int(np.floor(at))
            out = []
            for j in range(low - 1, low + 3):
                d = abs(at - j)
                near = (a + 2) * d**3 - (a + 3) * d**2 + 1
                far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
                out.append((j, near if d <= 1 else far))
            return out

        def nearest(i, size=size, count=count, ratio=ratio):
            return [(i * size // count if not scales else int(np.floor(i * ratio)), 1.0)]

        def exact(i, ratio=ratio):
            return [(int(np.floor((i + 0.5) * ratio)), 1.0)]

        kinds = {"linear": linear, "cubic": cubic, "nearest": nearest, "nearest-exact": exact}
        x = resample_axis(x, 2 + a, count, kinds[mode])
    return x


def attention(q, k, v, mask=None, causal=False, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        n, m = scores.shape[-2:]
        scores = np.where(np.arange(n)[:, None] >= np.arange(m), scores, -np.inf)
    best = scores.max(-1, keepdims=True)
    p = np.exp(scores - np.where(np.isfinite(best), best, 0))
    total = p.sum(-1, keepdims=True)
    return p / np.where(total == 0, 1, total) @ v


def standardize(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
