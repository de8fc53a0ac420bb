"""gr.random: known statistics of every distribution, keys, the global seed, compiled functions,
gradients, and errors.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import FLOATS
from girih import random
from scipy import special, stats

N = 20_000
# By name: draws of a shape, and SciPy's distribution. Continuous distributions.
CONTINUOUS = {
    "uniform": (lambda s, **k: random.uniform(s, low=-2.0, high=3.0, **k), stats.uniform(-2, 5)),
    "normal": (lambda s, **k: random.normal(s, loc=1.5, scale=2.0, **k), stats.norm(1.5, 2)),
    "laplace": (lambda s, **k: random.laplace(s, loc=-1.0, scale=0.5, **k), stats.laplace(-1, 0.5)),
    "gumbel": (lambda s, **k: random.gumbel(s, loc=2.0, scale=3.0, **k), stats.gumbel_r(2, 3)),
    "logistic": (
        lambda s, **k: random.logistic(s, loc=1.0, scale=0.3, **k),
        stats.logistic(1, 0.3),
    ),
    "cauchy": (lambda s, **k: random.cauchy(s, loc=1.0, scale=2.0, **k), stats.cauchy(1, 2)),
    "exponential": (lambda s, **k: random.exponential(s, scale=2.5, **k), stats.expon(scale=2.5)),
    "truncated_normal": (
        lambda s, **k: random.truncated_normal(-1.0, 2.5, s, loc=0.5, scale=1.5, **k),
        stats.truncnorm(-1, 2 / 1.5, 0.5, 1.5),
    ),
    "gamma": (lambda s, **k: random.gamma(2.5, s, scale=0.5, **k), stats.gamma(2.5, scale=0.5)),
    "gamma small": (lambda s, **k: random.gamma(0.3, s, **k), stats.gamma(0.3)),
    "gamma large": (lambda s, **k: random.gamma(1e4, s, **k), stats.gamma(1e4)),
    "beta": (lambda s, **k: random.beta(2.0, 3.5, s, **k), stats.beta(2, 3.5)),
    "beta small": (lambda s, **k: random.beta(0.4, 0.7, s, **k), stats.beta(0.4, 0.7)),
}
# The same for discrete distributions.
DISCRETE = {
    "bernoulli": (
        lambda s, **k: random.bernoulli(0.3, s, dtype=gr.int64, **k),
        stats.bernoulli(0.3),
    ),
    "poisson": (lambda s, **k: random.poisson(3.5, s, **k), stats.poisson(3.5)),
    "poisson, none": (lambda s, **k: random.poisson(0.01, s, **k), stats.poisson(0.01)),
    "poisson, ten": (lambda s, **k: random.poisson(10.0, s, **k), stats.poisson(10)),
    "poisson, many": (lambda s, **k: random.poisson(150.0, s, **k), stats.poisson(150)),
    "binomial": (lambda s, **k: random.binomial(12, 0.3, s, **k), stats.binom(12, 0.3)),
    "binomial, often": (lambda s, **k: random.binomial(12, 0.85, s, **k), stats.binom(12, 0.85)),
    "binomial, many": (lambda s, **k: random.binomial(200, 0.4, s, **k), stats.binom(200, 0.4)),
    "binomial, many often": (lambda s, **k: random.binomial(90, 0.7, s, **k), stats.binom(90, 0.7)),
    "randint": (lambda s, **k: random.randint(-3, 9, s, **k), stats.randint(-3, 9)),
    "categorical": (
        lambda s, **k: random.categorical([0.0, 1.0, -1.0, 0.5], shape=s, **k),
        stats.rv_discrete(values=(range(4), special.softmax([0, 1, -1, 0.5]))),
    ),
    "choice, weights": (
        lambda s, **k: random.choice(4, s, p=[1.0, 2.0, 0.0, 5.0], **k),
        stats.rv_discrete(values=(range(4), [0.125, 0.25, 0.0, 0.625])),
    ),
    "choice": (lambda s, **k: random.choice(5, s, **k), stats.randint(0, 5)),
    "rademacher": (
        lambda s, **k: random.rademacher(s, **k),
        stats.rv_discrete(values=([-1, 1], [0.5, 0.5])),
    ),
}
EVERY = {**CONTINUOUS, **DISCRETE}


def key(seed=11):
    return random.key(seed)


@pytest.mark.parametrize("source", ["seed", "key"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_are_distributed_as_they_should_be(name, source):
    draw, law = CONTINUOUS[name]
    x = draw((N,), **({"key": key()} if source == "key" else {}))
    assert x.dtype == gr.float32
    assert x.shape == (N,)
    assert stats.kstest(x.numpy().astype(np.float64), law.cdf).pvalue > 1e-3
    if name != "cauchy":
        # Moments, within five standard errors.
        mean, var = law.stats()
        values = x.numpy().astype(np.float64)
        assert abs(values.mean() - mean) < 5 * np.sqrt(var / N)
        fourth = law.stats(moments="k") + 2
        assert abs(values.var() - var) < 5 * var * np.sqrt(fourth / N)


@pytest.mark.parametrize("source", ["seed", "key"])
@pytest.mark.parametrize("name", DISCRETE)
def test_counts_are_distributed_as_they_should_be(name, source):
    draw, law = DISCRETE[name]
    x = draw((N,), **({"key": key(5)} if source == "key" else {}))
    assert x.dtype == gr.int64
    values = x.numpy()
    # Bins with at least ten expected draws; the end bins include the tails.
    low, high = int(law.ppf(1e-3)), int(law.ppf(1 - 1e-3))
    edges = np.arange(low, high)
    expected = np.diff([0, *law.cdf(edges), 1]) * N
    found = np.bincount(np.clip(values, low, high) - low, minlength=high - low + 1)
    some = expected > 10
    found, expected = found[some], expected[some]
    expected *= found.sum() / expected.sum()
    assert stats.chisquare(found, expected).pvalue > 1e-3
    assert (found[expected == 0] == 0).all()


def test_dirichlet_and_multinomial():
    alpha = np.array([0.5, 2.0, 3.5])
    x = random.dirichlet(alpha, (N,), key=key()).numpy()
    assert x.shape == (N, 3)
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-6)
    for i, a in enumerate(alpha):
        assert stats.kstest(x[:, i], stats.beta(a, alpha.sum() - a).cdf).pvalue > 1e-3
    p = [0.2, 0.5, 0.3]
    counts = random.multinomial(30, p, (N,), key=key()).numpy()
    assert (counts.sum(-1) == 30).all()
    for i in range(3):
        mean = 30 * p[i]
        assert abs(counts[:, i].mean() - mean) < 5 * np.sqrt(mean * (1 - p[i]) / N)
    covariance = np.cov(counts.T)[0, 1]
    assert abs(covariance + 30 * 0.2 * 0.5) < 0.15
    # Weights need not sum to one, the numbers of trials may differ, and a certain event gets all
    # draws.
    counts = random.multinomial(gr.asarray([3, 0, 7]), [0.0, 2.0, 0.0])
    assert counts.tolist() == [[0, 3, 0], [0, 0, 0], [0, 7, 0]]
    assert random.multinomial(5, [[1.0, 0.0], [0.0, 1.0]], (3, 2)).shape == (3, 2, 2)


def test_uniform_bits_are_bits():
    for dtype in (gr.uint8, gr.int16, gr.uint32, gr.int64):
        x = random.bits((N,), dtype=dtype, key=key()).numpy()
        assert x.dtype.itemsize * 8 == 8 * np.dtype(dtype.name).itemsize
        ones = np.unpackbits(x.view(np.uint8).reshape(N, -1), axis=1)
        assert np.abs(ones.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(N)
    assert random.bits().dtype == gr.uint32


@pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_every_floating_dtype(name, dtype):
    draw, law = CONTINUOUS[name]
    if name == "gamma large" and dtype in ("float16", "bfloat16"):
        pytest.skip("halves tell few numbers apart there")
    for k in ({}, {"key": key()}):
        x = draw((4000,), dtype=dtype, **k)
        assert x.dtype.name == dtype
        values = x.astype(gr.float64).numpy()
        # float16 and bfloat16 have few values, so distances are as large as their steps.
        slack = {"float16": 0.02, "bfloat16": 0.05}.get(dtype, 0.03)
        assert stats.kstest(values, law.cdf).statistic < slack + 0.02


def test_uniform_draws_stay_below_one():
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for k in ({}, {"key": key()}):
            x = random.uniform((50_000,), dtype=dtype, **k).astype(gr.float64).numpy()
            assert x.min() >= 0
            assert x.max() < 1


@pytest.mark.parametrize("name", EVERY)
def test_draws_depend_only_on_the_key(name):
    draw, _ = EVERY[name]
    first = draw((2, 3), key=key()).numpy()
    gr.manual_seed(99)
    random.normal((5,))
    np.testing.assert_array_equal(draw((2, 3), key=key()).numpy(), first)
    np.testing.assert_array_equal(gr.compile(lambda k: draw((2, 3), key=k))(key()).numpy(), first)
    other = draw((40, 50), key=key(12)).numpy()
    assert name == "poisson, none" or (other != draw((40, 50), key=key()).numpy()).any()


@pytest.mark.parametrize("name", EVERY)
def test_the_seed_gives_the_same_numbers_whatever_is_evaluated_first(name):
    draw, _ = EVERY[name]
    gr.manual_seed(3)
    a, b = draw((4, 5)), draw((4, 5))
    first = (a.numpy(), b.numpy())
    gr.manual_seed(3)
    a, b = draw((4, 5)), draw((4, 5))
    second_b = b.numpy()
    np.testing.assert_array_equal(a.numpy(), first[0])
    np.testing.assert_array_equal(second_b, first[1])


@pytest.mark.parametrize("name", [n for n in EVERY if n != "poisson, none"])
def test_a_compiled_function_draws_anew(name):
    draw, _ = EVERY[name]
    function = gr.compile(lambda: draw((10, 20)))
    draws = [function().numpy() for _ in range(3)]
    assert (draws[0] != draws[1]).any()
    assert (draws[1] != draws[2]).any()


def test_keys():
    parent = key()
    assert parent.dtype == gr.uint64
    assert parent.shape == ()
    keys = random.split(parent, 1000)
    folded = random.fold_in(parent, gr.arange(1000))
    every = np.concatenate([[parent.numpy()], keys.numpy(), folded.numpy()])
    assert len(set(every.tolist())) == 2001
    # Folding in many numbers at once equals folding in one at a time.
    assert random.fold_in(parent, 7).item() == folded[7].item()
    assert random.split(parent, (2, 3)).tolist() == random.split(parent, 6).reshape(2, 3).tolist()
    first, second = random.split(parent)
    assert first.item() != second.item()
    # Draws with different keys are independent.
    x, y = (random.normal((N,), key=k).numpy() for k in (first, second))
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(N)
    assert random.key(-1).item() == 2**64 - 1
    assert random.key(gr.asarray(5)).item() == random.key(5).item()
    # A key and a seed with the same bits are independent.
    gr.manual_seed(11)
    assert (random.normal((50,)).numpy() != random.normal((50,), key=key(11)).numpy()).all()


def test_keys_go_through_control_flow():
    def step(carry, i):
        carry, used = random.split(carry)
        return carry, random.normal((3,), key=used)

    last, drawn = gr.scan(step, key(), gr.arange(4))
    carry, expected = key(), []
    for _ in range(4):
        carry, used = random.split(carry)
        expected.append(random.normal((3,), key=used).numpy())
    np.testing.assert_array_equal(drawn.numpy(), expected)
    assert last.item() == carry.item()
    # Rejection sampling is a loop; this puts it in another loop.
    total = gr.fori_loop(
        0, 5, lambda i, t: t + random.poisson(2.0, key=random.fold_in(key(), i)), 0
    )
    one_by_one = [random.poisson(2.0, key=random.fold_in(key(), i)).item() for i in range(5)]
    assert total.item() == sum(one_by_one)
    best = gr.while_loop(
        lambda s: s[1] < 1.5,
        lambda s: (s[0] + 1, random.normal(key=random.fold_in(key(), s[0]))),
        (gr.asarray(0), gr.asarray(0.0)),
    )
    assert best[1].item() >= 1.5


#: Draws by attempts, whose number differs from element to element.
ATTEMPTS = [
    "gamma",
    "gamma small",
    "beta",
    "poisson",
    "poisson, many",
    "binomial",
    "binomial, many",
]


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempts_of_an_element_do_not_depend_on_the_others(name):
    draw, _ = EVERY[name]
    whole = draw((3000,), key=key()).numpy()
    np.testing.assert_array_equal(draw((7,), key=key()).numpy(), whole[:7])
    np.testing.assert_array_equal(draw((300, 10), key=key()).numpy().reshape(-1), whole)
    keys = random.split(key(), 5)
    each = gr.vmap(lambda k: draw((40,), key=k))(keys).numpy()
    np.testing.assert_array_equal(each, [draw((40,), key=k).numpy() for k in keys])


def test_parameters_of_each_element():
    # Means on both sides of the limit of rejection, one after the other.
    means = np.tile([0.5, 9.99, 10.0, 300.0], 5000)
    x = random.poisson(means, key=key()).numpy().reshape(-1, 4)
    for i, mean in enumerate(means[:4]):
        same = random.poisson(mean, (20_000,), key=key()).numpy().reshape(-1, 4)
        np.testing.assert_array_equal(x[:, i], same[:, i])
        assert abs(x[:, i].mean() - mean) < 5 * np.sqrt(mean / 5000)
    n, p = np.tile([3, 400, 10**9], 4000), np.tile([0.2, 0.7, 1e-8], 4000)
    x = random.binomial(n, p, key=key()).numpy().reshape(-1, 3)
    for i in range(3):
        spread = np.sqrt(n[i] * p[i] * (1 - p[i]) / 4000)
        assert abs(x[:, i].mean() - n[i] * p[i]) < 5 * spread
    a = np.tile([0.01, 1.0, 50.0], 4000)
    x = random.gamma(a, key=key(), dtype=gr.float64).numpy().reshape(-1, 3)
    for i in range(3):
        assert stats.kstest(x[:, i], stats.gamma(a[i]).cdf).pvalue > 1e-3


def test_new_keys_are_no_new_programs():
    # The seeds 0 and 1 are part of the structure, as all scalars 0 and 1 are.
    def both(seed):
        function(key(seed)).numpy()
        random.uniform((3,), key=random.fold_in(key(7), seed)).numpy()

    function = gr.compile(lambda k: random.normal((3,), key=k))
    both(2)
    before = gr.cache_stats()["compiles"]
    for seed in range(3, 8):
        both(seed)
    assert gr.cache_stats()["compiles"] == before


def test_dynamic_shapes():
    function = gr.compile(lambda x, k: random.normal(x.shape, key=k), {0: {0: "n"}})
    for size in (3, 5, 8):
        drawn = function(gr.zeros([size]), key()).numpy()
        np.testing.assert_array_equal(drawn, random.normal((size,), key=key()).numpy())


def test_parameters_broadcast():
    loc = gr.asarray([[0.0], [100.0]])
    x = random.normal((5, 2, 3), loc=loc, scale=[1.0, 1e-6, 2.0])
    assert x.shape == (5, 2, 3)
    assert (x.numpy()[:, 1] > 50).all()
    assert random.normal(loc=loc).shape == (2, 1)
    assert random.gamma(gr.ones([4, 1]), scale=gr.ones(3)).shape == (4, 3)
    assert random.bernoulli([0.0, 1.0], (3, 2)).tolist() == [[False, True]] * 3
    assert random.binomial([0, 5, 7], [0.3, 1.0, 0.0]).tolist() == [0, 5, 0]
    assert random.poisson(gr.asarray([0.0, 0.0])).tolist() == [0, 0]
    assert random.normal(loc=gr.zeros(3, dtype=gr.float64)).dtype == gr.float64
    assert random.normal(loc=gr.zeros(3, dtype=gr.float64), dtype=gr.float16).dtype == gr.float16


@pytest.mark.parametrize("name", EVERY)
def test_empty_and_scalar_shapes(name):
    draw, _ = EVERY[name]
    for k in ({}, {"key": key()}):
        assert draw((0, 3), **k).numpy().shape == (0, 3)
        assert draw((), **k).numpy().shape == ()


def test_categorical_along_any_axis():
    logits = np.full((3, 4), -np.inf, np.float32)
    logits[[0, 1, 2], [2, 0, 3]] = 0
    assert random.categorical(logits).tolist() == [2, 0, 3]
    assert random.categorical(logits.T, axis=0, shape=(5, 3)).tolist() == [[2, 0, 3]] * 5
    assert random.categorical(logits.astype(np.float64)).dtype == gr.int64
    with pytest.raises(gr.ShapeError, match=r"categorical"):
        random.categorical(logits, shape=(4,))
    with pytest.raises(gr.AxisError):
        random.categorical(logits, axis=2)


def test_orders():
    order = random.permutation(100, key=key()).numpy()
    assert sorted(order) == list(range(100))
    assert (order != np.arange(100)).any()
    x = np.arange(24).reshape(4, 6)
    moved = random.permutation(x, axis=1).numpy()
    assert sorted(moved[0]) == list(range(6))
    assert (moved - moved[0] == np.arange(4)[:, None] * 6).all()
    each = random.permutation(np.tile(np.arange(50), (4, 1)), axis=1, independent=True).numpy()
    assert (np.sort(each, axis=1) == np.arange(50)).all()
    assert (each[0] != each[1]).any()
    assert random.permutation(0).tolist() == []
    # All permutations of three are equally likely.
    orders = random.permutation(np.tile(np.arange(3), (6000, 1)), 1, independent=True).numpy()
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_choices():
    x = np.arange(12).reshape(4, 3)
    rows = random.choice(x, (5, 2)).numpy()
    assert rows.shape == (5, 2, 3)
    assert (rows[..., 0] % 3 == 0).all()
    columns = random.choice(x, 2, replace=False, axis=1).numpy()
    assert columns.shape == (4, 2)
    assert len(set(random.choice(10, 10, replace=False).tolist())) == 10
    weights = [0.0, 1.0, 1.0, 0.0]
    assert sorted(random.choice(4, 2, replace=False, p=weights).tolist()) == [1, 2]
    # The first of two draws without replacement follows the weights.
    keys = random.split(key(), 2000)
    first = [random.choice(3, 2, replace=False, p=[1.0, 2.0, 7.0], key=k)[0] for k in keys[:400]]
    counts = np.bincount([t.item() for t in first], minlength=3)
    assert stats.chisquare(counts, [40, 80, 280]).pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_flow_to_parameters(dtype):
    scale = gr.asarray(np.array([0.5, 2.0], dtype))
    for f in (random.normal, random.laplace, random.gumbel, random.logistic, random.cauchy):
        grad = gr.grad(lambda s, f=f: f((2,), loc=3.0 * s, scale=s, key=key()).sum())(scale)
        standard = f((2,), dtype=dtype, key=key()).numpy()
        np.testing.assert_allclose(grad.numpy(), 3 + standard, rtol=1e-5)
    grad = gr.grad(lambda s: random.exponential((2,), scale=s, key=key()).sum())(scale)
    np.testing.assert_allclose(
        grad.numpy(), random.exponential((2,), dtype=dtype, key=key()).numpy(), rtol=1e-6
    )
    grad = gr.grad(lambda s: random.uniform((2,), low=s, high=5.0, key=key()).sum())(scale)
    u = random.uniform((2,), dtype=dtype, key=key()).numpy()
    np.testing.assert_allclose(grad.numpy(), 1 - u, rtol=1e-5)

    def truncated(s):
        return random.truncated_normal(-s, s, (2,), loc=0.1 * s, scale=1.5, key=key()).sum()

    h = 1e-2 if dtype == "float32" else 1e-5
    for i in range(2):
        step = np.zeros(2, dtype)
        step[i] = h
        difference = (truncated(scale + step) - truncated(scale - step)).item() / (2 * h)
        np.testing.assert_allclose(gr.grad(truncated)(scale)[i].item(), difference, rtol=2e-2)


TAILS = [(5.5, 6.0), (6.0, np.inf), (10.0, 10.001), (40.0, 50.0), (1e4, 2e4), (4.0, 9.0)]


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("bounds", TAILS)
def test_truncated_normal_far_from_the_mean(bounds, side):
    from scipy import stats

    low, high = bounds
    args = (low, high) if side > 0 else (-high, -low)
    x = random.truncated_normal(*args, (4000,), dtype=gr.float64, key=key()).numpy()
    assert ((args[0] <= x) & (x <= args[1])).all()
    # Use the logarithm of the tail's mass, which SciPy computes without cancellation.
    mass = stats.norm.logsf(side * x) - stats.norm.logsf(low)
    rest = np.exp(stats.norm.logsf(high) - stats.norm.logsf(low))
    uniform = -np.expm1(mass) / (1 - rest)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    shifted = random.truncated_normal(-2.0, 2.0, (100,), loc=100.0 * side, key=key()).numpy()
    assert (shifted * side <= 2).all()
    assert (shifted * side > 1.8).all()


def test_gradients_of_a_truncated_tail():
    def draw(low, loc):
        return random.truncated_normal(low, 9.0, (), loc=loc, dtype=gr.float64, key=key())

    for at in ((6.0, 0.0), (6.0, -50.0), (5.9, 0.5)):
        for i in range(2):
            ends = [tuple(v + s * (j == i) for j, v in enumerate(at)) for s in (1e-6, -1e-6)]
            want = (draw(*ends[0]).item() - draw(*ends[1]).item()) / 2e-6
            got = gr.grad(draw, argnums=i)(*(gr.asarray(v, dtype=gr.float64) for v in at))
            np.testing.assert_allclose(got.item(), want, rtol=1e-4, atol=1e-6)


def test_gradients_of_rejection():
    grad = gr.grad(lambda s: random.gamma(2.0, (3,), scale=s, key=key()).sum())(gr.asarray(2.0))
    np.testing.assert_allclose(
        grad.item(), random.gamma(2.0, (3,), key=key()).sum().item(), rtol=1e-6
    )


def test_bad_parameters_give_nan_or_minus_one():
    assert np.isnan(random.gamma([0.0, -1.0, np.nan, np.inf]).numpy()).all()
    assert np.isnan(random.beta(-1.0, 2.0).item())
    assert random.poisson([-1.0, np.nan, np.inf]).tolist() == [-1, -1, -1]
    assert random.binomial([-1, 3, 3], [0.5, 1.5, np.nan]).tolist() == [-1, -1, -1]
    assert random.binomial(2.5, 0.5).item() == -1


def test_refusals():
    with pytest.raises(gr.ShapeError, match=r"normal"):
        random.normal((2, 3), loc=gr.zeros(2))
    with pytest.raises(gr.ShapeError, match=r"uniform.*-1"):
        random.uniform((-1,))
    for f in (random.normal, random.uniform, random.exponential):
        with pytest.raises(gr.DTypeError, match=rf"{f.__name__}.*int32"):
            f((2,), dtype=gr.int32)
    with pytest.raises(gr.DTypeError, match="complex"):
        random.normal(scale=gr.asarray(1j))
    with pytest.raises(gr.DTypeError, match="key"):
        random.normal((3,), key=gr.asarray(0))
    with pytest.raises(gr.ShapeError, match="one key"):
        random.normal((3,), key=random.split(key()))
    with pytest.raises(gr.DTypeError, match="integer"):
        random.key(0.5)
    with pytest.raises(gr.DTypeError, match="integer"):
        random.fold_in(key(), 1.5)
    with pytest.raises(gr.GirihError):
        random.key(2**64)
    with pytest.raises(gr.DTypeError, match="integer"):
        random.bits((3,), dtype=gr.float32)
    with pytest.raises(gr.InvalidArgumentError, match="randint"):
        random.randint(3, 3)
    with pytest.raises(gr.InvalidArgumentError, match="randint"):
        random.randint(0, 300, dtype=gr.uint8)
    with pytest.raises(gr.DTypeError, match="randint"):
        random.randint(0, 3, dtype=gr.float32)
    with pytest.raises(gr.InvalidArgumentError, match="without replacement"):
        random.choice(3, 4, replace=False)
    with pytest.raises(gr.InvalidArgumentError, match="1 of 0 are asked for"):
        random.choice(0, 1)
    with pytest.raises(gr.ShapeError, match="weight"):
        random.choice(3, 2, p=[0.5, 0.5])
    with pytest.raises(gr.ShapeError):
        random.dirichlet(1.0)
    with pytest.raises(gr.ShapeError, match="multinomial"):
        random.multinomial(3, 0.5)
    # The argument order of other libraries raises an error instead of returning another result.
    with pytest.raises(TypeError):
        random.normal(0.0, 1.0, (2, 3))
    with pytest.raises((TypeError, gr.GirihError)):
        random.normal(key(), (2, 3))


def test_draws_in_a_while_loop_take_a_key():
    start = (gr.asarray(0), gr.asarray(0.0))

    def draw(pair):
        return pair[0] + 1, pair[1] + gr.random.normal(())

    with pytest.raises(gr.errors.InvalidArgumentError, match=r"global seed.*pass key="):
        gr.while_loop(lambda pair: pair[0] < 3, draw, start)
    key = gr.random.key(3)

    def draw_by_key(pair):
        return pair[0] + 1, pair[1] + gr.random.normal((), key=gr.random.fold_in(key, pair[0]))

    _, total = gr.while_loop(lambda pair: pair[0] < 3, draw_by_key, start)
    draws = [gr.random.normal((), key=gr.random.fold_in(key, i)).item() for i in range(3)]
    assert total.item() == pytest.approx(sum(draws), rel=1e-5)
