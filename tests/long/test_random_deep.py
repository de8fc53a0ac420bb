"""Statistics of random draws that need many of them: minutes."""

import girih as gr
import numpy as np
import pytest
from girih import random
from scipy import stats


@pytest.mark.parametrize("p", [1e-9, 3e-8, 1e-7])
def test_hundreds_of_millions_of_draws_have_the_rare_events_expected(p):
    n = 300_000_000
    bounds = stats.poisson(n * p).ppf([1e-7, 1 - 1e-7])
    for f in (
        lambda: random.bernoulli(p, (n,), key=random.key(1)).sum().item(),
        lambda: random.bernoulli(p, (n,)).sum().item(),
        lambda: (gr.dropout(gr.ones([n // 4]), p) == 0).sum().item() * 4,
        lambda: n - random.bernoulli(1 - p, (n,), key=random.key(2)).sum().item(),
    ):
        gr.manual_seed(0)
        assert bounds[0] - 4 <= f() <= bounds[1] + 12


def test_categorical_draws_of_sixteen_million_classes_are_uniform():
    n, draws = 16_000_000, []
    for seed in range(24):
        draw = random.categorical(gr.zeros([n]), shape=(5,), key=random.key(seed))
        draws.append(draw.astype("float64").numpy() / n)
    assert stats.kstest(np.concatenate(draws), "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [
        (random.exponential, stats.expon()),
        (random.gumbel, stats.gumbel_r()),
        (random.laplace, stats.laplace()),
        (random.logistic, stats.logistic()),
        (random.cauchy, stats.cauchy()),
    ],
)
def test_the_extremes_of_a_billion_draws_have_their_distribution(draw, distribution):
    n, rounds = 50_000_000, 20
    largest = []
    for seed in range(rounds):
        x = draw((n,), key=random.key(seed))
        largest.append(x.max().item())
    # The share of the distribution above the largest of n draws, times n, is exponential.
    shares = distribution.sf(np.array(largest)) * n
    assert stats.kstest(shares, "expon").pvalue > 1e-4
