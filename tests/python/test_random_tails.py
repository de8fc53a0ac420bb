"""Random draws at the limits: rare events, tails, wide ranges, weights that are none."""

import math

import girih as gr
import numpy as np
import pytest
from girih import random
from scipy import stats

INF = math.inf


def _key(seed=0):
    return random.key(seed)


@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-15, 1e-9, 2.0**-26])
def test_rare_events_are_as_rare_as_asked(p):
    n = 2_000_000
    most = 5 + n * p * 3
    for draws in (
        random.bernoulli(p, (n,), key=_key()),
        random.bernoulli(gr.asarray(p, dtype="float64"), (n,), key=_key()),
        random.bernoulli(1.0 - p, (n,), key=_key()).logical_not(),
        random.bernoulli(gr.asarray(1.0 - p, dtype="float64"), (n,), key=_key()).logical_not(),
        gr.dropout(gr.ones([n]), p) == 0,
        gr.alpha_dropout(gr.ones([n]), p) < 0,
    ):
        assert draws.sum().item() <= most


@pytest.mark.parametrize("p", [2.0**-12, 1e-3, 0.3, 0.5, 1 - 1e-3, 1 - 2.0**-12])
def test_events_have_their_probability_on_both_sides_of_the_fast_path(p):
    n = 1_000_000
    for draws in (
        random.bernoulli(p, (n,), key=_key(3)),
        random.bernoulli(gr.full([n], p, dtype="float64"), key=_key(4)),
        (gr.dropout(gr.ones([n]), p) == 0),
    ):
        count = draws.sum().item()
        assert abs(count - n * p) < 6 * (n * p * (1 - p)) ** 0.5 + 1


def test_certain_events_are_certain():
    n = 100_000
    assert random.bernoulli(1.0, (n,), key=_key()).all()
    assert random.bernoulli(gr.ones([n]), key=_key()).all()
    assert not random.bernoulli(0.0, (n,), key=_key()).any()
    assert not random.bernoulli(gr.asarray([math.nan, -1.0, 0.0]), key=_key()).any()
    assert random.bernoulli(gr.asarray([2.0, INF]), key=_key()).all()


# With bits at their limits, the draws of a distribution are those of its outermost quantiles.
TAILS = {
    "exponential": (lambda **k: random.exponential(**k), stats.expon()),
    "gumbel": (lambda **k: random.gumbel(**k), stats.gumbel_r()),
    "laplace": (lambda **k: random.laplace(**k), stats.laplace()),
    "logistic": (lambda **k: random.logistic(**k), stats.logistic()),
    "cauchy": (lambda **k: random.cauchy(**k), stats.cauchy()),
}


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_are_finite_distinct_and_have_both_tails(name, dtype):
    draw, distribution = TAILS[name]
    n = 4_000_000
    x = draw(shape=(n,), dtype=dtype, key=_key(5)).numpy().astype(np.float64)
    assert np.isfinite(x).all()
    # The extremes of n draws lie between these quantiles with a probability of 1 - 4e-6.
    for share, extreme in ((1e-6 / n, x.min()), (1e-6 / n, -x.max())):
        sign = 1.0 if extreme == x.min() else -1.0
        bound = distribution.ppf(share) if sign > 0 else -distribution.isf(share)
        likely = distribution.ppf(15 / n) if sign > 0 else -distribution.isf(15 / n)
        assert bound * (1 - 1e-6) - 1e-12 <= extreme <= likely
    # A multiple of an epsilon has few values in the tail.
    tail = np.sort(x)[-1000:]
    assert len(np.unique(tail)) > 980


def test_exponential_draws_near_zero_are_not_multiples_of_an_epsilon():
    x = random.exponential((4_000_000,), key=_key(7)).numpy()
    assert x.min() > 0
    small = np.sort(x)[:200]
    assert len(np.unique(small)) == 200
    assert stats.kstest(small / x[np.argsort(x)[200]], "uniform").pvalue > 1e-4


def test_categorical_draws_of_many_classes_have_no_preference():
    n, count = 1_000_000, 60
    keys = random.split(_key(1), 6)
    draws = [random.categorical(gr.zeros([n]), shape=(10,), key=key) for key in keys]
    mean = np.concatenate([d.numpy() for d in draws]).mean() / n
    assert abs(mean - 0.5) < 4 * (1 / 12 / count) ** 0.5


def test_gumbel_softmax_has_finite_noise():
    soft = gr.gumbel_softmax(gr.zeros([1000, 1000]), tau=1.0, hard=False)
    assert gr.isfinite(soft).all()
    assert (soft.sum(-1) - 1).abs().max().item() < 1e-4


CHOICES = [
    ([0.0, 0.0, 0.0, 0.5, 0.5], 3, False, "at least as many"),
    ([math.nan, 0.0, 1.0], 4, True, "NaN"),
    ([-1.0, 1.0, 1.0], 4, True, "negative"),
    ([0.0, 0.0, 0.0], 4, True, "positive"),
    ([INF, 1.0], 1, True, "finite"),
]


@pytest.mark.parametrize(("p", "size", "replace", "message"), CHOICES)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_weights_that_are_no_probabilities_are_an_error(p, size, replace, message, as_tensor):
    given = gr.asarray(p) * 1 if as_tensor else p
    with pytest.raises(gr.InvalidArgumentError, match=message) as error:
        random.choice(len(p), (size,), replace=replace, p=given, key=_key())
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("replace", [True, False])
def test_an_element_without_weight_is_never_chosen(replace):
    weights = [0.0, 1e-320, 0.0, 1.0, 3.0, 0.0]
    p = gr.asarray(weights, dtype="float64")
    size = 20_000 if replace else 3
    found = random.choice(6, (size,), replace=replace, p=p, key=_key()).numpy()
    assert set(found) <= {1, 3, 4}
    # Rounding must not lead to the last element, whose weight is zero.
    tenth = [0.1] * 10 + [0.0]
    found = random.choice(11, (50_000,), p=tenth, key=_key(2)).numpy()
    assert found.max() == 9
    if not replace:
        found = random.choice(11, (10,), replace=False, p=tenth, key=_key(2)).numpy()
        assert sorted(found) == list(range(10))


def test_choices_of_a_compiled_function_are_not_checked_and_in_range():
    f = gr.compile(lambda p, key: random.choice(3, (5,), p=p, key=key))
    assert set(f(gr.asarray([0.0, 1.0, 0.0]), _key()).tolist()) == {1}


def test_multinomial_counts_of_impossible_categories_are_zero_and_of_bad_weights_minus_one():
    p = gr.asarray([0.1] * 10 + [0.0], dtype="float64")
    counts = random.multinomial(10**9, p, key=_key())
    assert counts[-1].item() == 0
    assert counts.sum().item() == 10**9
    bad = gr.asarray([[0.5, -0.5, 1.0], [0.0, 0.0, 0.0], [math.nan, 1.0, 1.0], [1.0, INF, 1.0]])
    assert (random.multinomial(5, bad, key=_key()) == -1).all()
    good = random.multinomial(5, gr.asarray([0.0, 2.0, 0.0]), key=_key())
    assert good.tolist() == [0, 5, 0]


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_cover_the_whole_range_of_their_dtype(dtype):
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max) + 1
    n = 20_000
    x = random.randint(low, high, (n,), dtype=dtype, key=_key(1)).numpy()
    assert x.dtype == dtype
    quarters = (x.astype(object) - low) * 4 // (high - low)
    counts = np.bincount(quarters.astype(int), minlength=4)
    assert abs(counts - n / 4).max() < 6 * (n * 3 / 16) ** 0.5
    # A range of one integer at each end.
    assert random.randint(low, low + 1, (3,), dtype=dtype, key=_key()).tolist() == [low] * 3
    assert random.randint(high - 1, high, (3,), dtype=dtype, key=_key()).tolist() == [high - 1] * 3
    assert gr.randint(low, high, (3,), dtype=dtype).shape == (3,)
    for bad in ((low - 1, high), (low, high + 1), (high, low), (low, low)):
        with pytest.raises(gr.InvalidArgumentError, match=str(bad[0])):
            random.randint(*bad, (3,), dtype=dtype, key=_key())


@pytest.mark.parametrize(
    ("low", "high"), [(0, 3 * 2**61), (-(2**62), 2**63), (-5, 2**33), (0, 2**32), (7, 2**63)]
)
@pytest.mark.parametrize("modulus", [2, 3, 5])
def test_integers_of_wide_ranges_are_uniform_in_size_and_remainder(low, high, modulus):
    n = 200_000
    x = random.randint(low, high, (n,), key=_key(4)).numpy().astype(object)
    assert x.min() >= low
    assert x.max() < high
    third = ((x - low) * 3 // (high - low)).astype(int)
    remainder = (x % modulus).astype(int)
    for values, count in ((third, 3), (remainder, modulus)):
        found = np.bincount(values, minlength=count)
        assert abs(found - n / count).max() < 6 * (n / count) ** 0.5


def test_integers_of_unsigned_ranges_beyond_2_63():
    x = random.randint(2**63 - 2, 2**63 + 2, (1000,), dtype="uint64", key=_key()).numpy()
    assert set(x.astype(object)) == set(range(2**63 - 2, 2**63 + 2))
    x = random.randint(2**64 - 2, 2**64, (100,), dtype="uint64", key=_key()).numpy()
    assert set(x.astype(object)) == {2**64 - 2, 2**64 - 1}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("as_tensors", [False, True])
def test_uniform_draws_lie_between_their_bounds(dtype, as_tensors):
    largest = {"float16": 65504.0, "bfloat16": 3.38e38, "float32": 3.4e38, "float64": 1.79e308}
    wide = largest[dtype]
    for low, high in [(-wide, wide), (1.0, 2.0), (0.0, 0.1), (-3.0, -2.0), (-wide, 0.0), (5, 5)]:
        bounds = [gr.asarray(float(b), dtype=dtype) for b in (low, high)]
        given = bounds if as_tensors else (low, high)
        x = random.uniform((50_000,), low=given[0], high=given[1], dtype=dtype, key=_key(1))
        assert x.dtype == gr.asarray(1.0, dtype=dtype).dtype
        x = x.astype("float64").numpy()
        low, high = (b.astype("float64").item() for b in bounds)
        assert np.isfinite(x).all()
        if low == high:
            assert (x == low).all()
            continue
        assert x.min() >= low
        assert x.max() < high
        assert x.min() < low / 100 * 99 + high / 100
        assert x.max() > high / 100 * 98 + low / 100 * 2


def test_gradients_flow_to_the_bounds_of_a_uniform_draw():
    def f(low, high):
        return random.uniform((1000,), low=low, high=high, key=_key(3)).mean()

    low, high = gr.grad(f, argnums=(0, 1))(gr.asarray(1.0), gr.asarray(3.0))
    unit = random.uniform((1000,), key=_key(3)).mean().item()
    assert (low.item(), high.item()) == pytest.approx((1 - unit, unit), abs=1e-5)
    low, high = gr.grad(f, argnums=(0, 1))(gr.asarray(-3e38), gr.asarray(3e38))
    assert (low.item(), high.item()) == pytest.approx((1 - unit, unit), abs=1e-5)
