"""Guards: if an object that a compiled function has read changes, the function is traced again or
raises.
"""

from __future__ import annotations

import functools
import types
import warnings

import girih as gr
import numpy as np
import pytest
from girih import nn

SCALE = 2.0


def x4():
    return gr.asarray(np.arange(4, dtype=np.float32)).eval()


def check(compiled, fun, *args, programs=None):
    """Asserts, twice, that the compiled function returns the function's own value."""
    for _ in range(2):
        np.testing.assert_array_equal(compiled(*args).numpy(), fun(*args).numpy())
    if programs is not None:
        assert compiled.num_programs == programs


def test_modes_of_a_module_are_those_of_the_call():
    model = gr.eval(nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)))
    compiled = gr.compile(model)
    zeros = lambda: (compiled(x4()).numpy() == 0).sum()
    assert 5 < zeros() < 60
    model.eval()
    assert zeros() == 0
    assert compiled.retraced == ["Sequential.1.training was True and is now False"]
    model.train()
    assert 5 < zeros() < 60
    assert compiled.num_programs == 2
    model[1].p = 0.0
    assert zeros() == 0


class Config:
    factor = 2.0

    def __init__(self):
        self.shift = 1.0
        self.unread = 0


class Slots:
    __slots__ = ("factor", "weight")

    def __init__(self):
        self.factor = 2.0
        self.weight = gr.ones([4]).eval()


def test_numbers_strings_and_functions_are_read_afresh():
    factor, kind, act, flags, pair, table = 2.0, "relu", gr.sin, [1, 2], (1.0, 2), {"a": 1.0}
    config, slots, names = Config(), Slots(), {"u"}
    array = np.ones(4, np.float32)

    def f(x):
        x = act(x) * factor + (1 if kind == "relu" else 2) + sum(flags) + pair[0] + table["a"]
        x = x * config.factor + config.shift + slots.factor * slots.weight
        return x + SCALE + len(names) + array

    compiled = gr.compile(f)

    def changed():
        before = compiled.num_programs
        check(compiled, f, x4(), programs=before + 1)

    changed()
    factor = 3.0
    changed()
    kind = "tanh"
    changed()
    act = gr.cos
    changed()
    flags.append(5)
    changed()
    pair = (1.0, 3)
    changed()
    table["a"] = 2.0
    changed()
    config.shift = 5.0
    changed()
    config.factor = 7.0
    changed()
    Config.factor = 2.0
    slots.factor = 9.0
    changed()
    names.add("v")
    changed()
    array[2] = 7
    changed()
    factor = 3
    changed()
    globals()["SCALE"] = 4.0
    changed()
    # Objects that the executed code does not refer to may change freely, and so may the values of
    # tensors.
    config.unread = 3
    slots.weight = gr.zeros([4]).eval()
    check(compiled, f, x4(), programs=compiled.num_programs)
    # Replacing objects by equal ones keeps the program.
    pair, table, flags = (1.0, 3), dict(table), list(flags)
    check(compiled, f, x4(), programs=compiled.num_programs)


def test_an_instance_attribute_that_shadows_a_class_attribute_is_seen():
    config = Config()
    compiled = gr.compile(lambda x: x * config.factor)
    check(compiled, lambda x: x * 2.0, x4())
    config.factor = 3.0
    check(compiled, lambda x: x * 3.0, x4())


def test_values_read_by_methods_and_helpers_are_guarded():
    helper = types.ModuleType("helper")
    exec("RATE = 2.0\ndef scaled(x):\n    return x * RATE", helper.__dict__)

    class Net(nn.Module):
        depth = 1

        def __init__(self):
            self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]

        @property
        def rate(self):
            return helper.RATE

        def forward(self, x):
            for i in range(self.depth):
                x = getattr(self, "layers")[i](x)  # noqa: B009
            return helper.scaled(x) * self.rate

    net = gr.eval(Net())
    compiled = gr.compile(net)
    check(compiled, net, x4(), programs=1)
    helper.RATE = 3.0
    check(compiled, net, x4(), programs=2)
    net.depth = 2
    check(compiled, net, x4(), programs=3)
    net.layers[1] = nn.ReLU()
    check(compiled, net, x4(), programs=4)
    net.layers = [gr.sin, gr.cos]
    check(compiled, net, x4(), programs=5)


def test_partials_and_tensors_of_other_shapes():
    w = gr.ones([4]).eval()
    compiled = gr.compile(functools.partial(lambda k, x: x * k + w.shape[0], 3.0))
    assert compiled(x4()).tolist() == [4.0, 7.0, 10.0, 13.0]
    w = gr.ones([2]).eval()
    assert compiled(x4()).tolist() == [2.0, 5.0, 8.0, 11.0]
    w = 3
    with pytest.raises(AttributeError):
        compiled(x4())


def test_tensors_in_replaced_containers_are_read_afresh():
    params = {"w": gr.ones([4]).eval()}
    compiled = gr.compile(lambda x: x * params["w"])
    for value in range(3):
        params = {"w": gr.full([4], float(value)).eval()}
        check(compiled, lambda x, value=value: x * value, x4(), programs=1)


def test_tensors_that_are_no_longer_aliased_retrace():
    held = {"a": gr.ones([4]).eval()}
    held["b"] = held["a"]
    f = lambda x: x * held["a"] + held["b"]
    compiled = gr.compile(f)
    check(compiled, f, x4(), programs=1)
    held["b"] = gr.zeros([4]).eval()
    check(compiled, f, x4(), programs=2)


def test_numbers_that_the_function_changes_are_changed_by_each_call():
    state = types.SimpleNamespace(n=0, last=None, on=False)

    def f(x):
        state.n += 1
        state.last = x.shape
        state.on = True
        return x * state.n

    compiled = gr.compile(f)
    for n in (1, 2, 3):
        np.testing.assert_array_equal(compiled(x4()).numpy(), x4().numpy() * n)
        assert (state.n, state.last, state.on) == (n, (4,), True)


def test_a_list_that_the_function_appends_to_is_a_record_of_its_traces():
    traced = []
    compiled = gr.compile(lambda x: traced.append(x.shape) or x + 1)
    for _ in range(3):
        compiled(x4())
    assert traced == [(4,)]


def test_a_value_that_retraces_every_call_gives_a_warning():
    step = 0
    compiled = gr.compile(lambda x: x * step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(12):
            check(compiled, lambda x, n=step: x * n, x4())
    assert len(caught) == 1
    assert "step differs from call to call" in str(caught[0].message)


def test_large_arrays_that_may_change_are_refused():
    table = np.ones(100_000, np.float32)
    compiled = gr.compile(lambda x: x + table[:4])
    with pytest.raises(gr.InvalidArgumentError, match=r"table, an array of 400000 bytes"):
        compiled(x4())
    table.flags.writeable = False
    check(compiled, lambda x: x + 1, x4())


@pytest.mark.parametrize(
    "read",
    [
        lambda w: w.item(), lambda w: float(w), lambda w: w.tolist(), lambda w: w.numpy(),
        lambda w: bool(w > 0), lambda w: (w * 2).item(), lambda w: gr.eval(w + 1),
        lambda w: np.from_dlpack(w), lambda w: gr.rand([]).item(), lambda w: int(w),
    ],
)  # fmt: skip
def test_values_of_tensors_outside_are_not_read(read):
    w = gr.asarray(2.0).eval()
    compiled = gr.compile(lambda x: (read(w), x * w)[1])
    with pytest.raises(gr.TracedValueError, match="compiled refers to"):
        compiled(x4())
    assert gr.asarray(3.0).item() == 3.0
    assert w.item() == 2.0


def test_storing_a_tensor_in_a_new_attribute_is_refused():
    model = gr.eval(nn.Linear(4, 4))

    def f(x):
        model.cache = model(x)
        return model.cache

    with pytest.raises(gr.InvalidArgumentError, match=r"model.cache.*nothing before"):
        gr.compile(f)(x4())


def test_random_numbers_are_those_of_the_plain_function():
    def inner(x):
        return x + gr.randn([5])[:4]

    def f(x):
        gr.rand([7])  # An unused draw advances the generator, too.
        carry, noise = gr.scan(lambda c, _: (c + gr.rand([]), gr.rand([2])), 0.0, length=3)
        return inner(x) * gr.rand(x.shape) + carry + noise.sum()

    def nested(x):
        return gr.compile(inner)(x) + compiled_inner(x) + gr.randint(0, 9, (4,))

    compiled_inner = gr.compile(inner)
    for fun in (f, nested):
        for kwargs in ({}, {"dynamic_dims": {0: {0: "n"}}}):
            compiled = gr.compile(fun, **kwargs)
            gr.manual_seed(11)
            expected = [fun(x4()).numpy() for _ in range(3)]
            after = gr.rand([3]).numpy()
            gr.manual_seed(11)
            np.testing.assert_array_equal([compiled(x4()).numpy() for _ in range(3)], expected)
            np.testing.assert_array_equal(gr.rand([3]).numpy(), after)
            if kwargs and fun is f:
                long = gr.eval(gr.ones([4]))
                gr.manual_seed(5)
                expected = fun(long).numpy()
                gr.manual_seed(5)
                np.testing.assert_array_equal(compiled(long).numpy(), expected)
                assert compiled.num_programs == 1


def test_random_numbers_under_grad_and_at_other_sizes():
    f = lambda x: (x * gr.rand(x.shape) + gr.rand([3]).sum()).sum()
    compiled = gr.compile(f, dynamic_dims={0: {0: "n"}})
    for n in (2, 5, 1000, 3):
        x = gr.eval(gr.ones([n]))
        for function in (lambda g: g, gr.grad):
            gr.manual_seed(n)
            expected = function(f)(x).numpy()
            gr.manual_seed(n)
            np.testing.assert_array_equal(function(compiled)(x).numpy(), expected)
    assert compiled.num_programs == 1


def test_a_failing_trace_draws_nothing():
    compiled = gr.compile(lambda x: gr.rand([3]) @ gr.ones([2, 2]))
    gr.manual_seed(1)
    expected = gr.rand([2]).tolist()
    gr.manual_seed(1)
    with pytest.raises(gr.ShapeError):
        compiled(x4())
    assert gr.rand([2]).tolist() == expected


def test_static_arguments():
    calls = []

    def f(x, mode, n):
        calls.append((mode, n))
        return x * n if mode == "mul" else x + n

    for options in ({"static_argnames": ("mode", "n")}, {"static_argnums": (1, -1)}):
        compiled = gr.compile(**options)(f)
        for _ in range(2):
            assert compiled(x4(), "mul", 3).tolist() == [0, 3, 6, 9]
            assert compiled(x4(), mode="add", n=3).tolist() == [3, 4, 5, 6]
        assert compiled.num_programs == 2
    with pytest.raises(gr.InvalidArgumentError, match="static, and is a tensor"):
        compiled(x4(), "mul", gr.asarray(1.0))
    with pytest.raises(gr.InvalidArgumentError, match=r"static_argnames.*'mod'.*x, mode, n"):
        gr.compile(f, static_argnames="mod")
    assert gr.compile(lambda x, shape: x.reshape(shape), static_argnums=1)(x4(), (2, 2)).shape == (2, 2)  # fmt: skip


class Scaler:
    def __init__(self, factor):
        self.factor = factor
        self.weight = gr.full([4], 2.0).eval()

    @gr.compile
    def __call__(self, x):
        return x * self.factor * self.weight

    @gr.compile(donate="x")
    def twice(self, x, *, add=0.0):
        return self(x) * 2 + add


def test_methods_are_bound():
    a, b = Scaler(1.0), Scaler(3.0)
    for _ in range(2):
        assert a(x4()).tolist() == [0, 2, 4, 6]
        assert b(x4()).tolist() == [0, 6, 12, 18]
        assert a.twice(x4()).tolist() == [0, 4, 8, 12]
        assert b.twice(x4(), add=1.0).tolist() == [1, 13, 25, 37]
        a.weight = gr.full([4], 2.0).eval()
    assert Scaler.__call__.num_programs == 2
    a.factor = 2.0
    assert a(x4()).tolist() == [0, 4, 8, 12]


def test_a_compiled_module_has_the_modules_attributes():
    model = gr.eval(nn.Linear(4, 2))
    compiled = gr.compile(model)
    compiled(x4())
    assert compiled.weight is model.weight
    model.weight = gr.zeros([2, 4]).eval()
    model.bias = gr.ones([2]).eval()
    assert compiled.weight is model.weight
    assert compiled(x4()).tolist() == [1.0, 1.0]
    assert [name for name, _ in compiled.named_parameters()] == ["weight", "bias"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = compiled.nothing


def test_branches_on_values_under_grad():
    def f(x):
        loss = (x * x).sum()
        if loss > 1:
            loss = loss * 2
        return loss * float(x[0] * 3) if x[0].item() < 0 else loss

    for value, expected in ((0.5, 1.0), (2.0, 8.0)):
        x = gr.asarray([value])
        assert gr.grad(f)(x).tolist() == [expected]
        assert gr.value_and_grad(f)(x)[1].tolist() == [expected]
    inner = lambda x: gr.grad(f)(x).sum() if x[0] > 1 else x.sum()
    assert gr.grad(inner)(gr.asarray([2.0])).tolist() == [4.0]
    assert gr.grad(inner)(gr.asarray([0.5])).tolist() == [1.0]


@pytest.mark.parametrize("wrap", [lambda f: f, gr.grad])
def test_branches_on_values_under_compile_name_the_argument(wrap):
    def f(x, params):
        return x.sum() if params["w"][0] > 1 else (x * params["w"][0]).sum()

    compiled = gr.compile(wrap(f))
    with pytest.raises(gr.TracedValueError, match=r"'params\['w'\]\[0\]'.*static_argnames"):
        compiled(x4(), {"w": [gr.asarray(1.0)]})
    with pytest.raises(gr.TracedValueError, match="compiled refers to"):
        gr.compile(lambda: gr.grad(lambda y: y * 2 if y > 1 else y)(outside))()


outside = gr.asarray(2.0)


def test_errors_of_a_call_say_where():
    table = gr.eval(gr.rand([5, 2]))
    compiled = gr.compile(lambda i: table[i].sum())  # here
    compiled(gr.asarray([1, 2]).eval())
    with pytest.raises(IndexError, match=r"recorded at .*test_compile_guards\.py:\d+"):
        compiled(gr.asarray([1, 7]).eval())


def test_calls_are_profiled():
    with gr.use_executor(gr.Executor(gr.ExecutorConfig(profile=True))) as executor:
        compiled = gr.compile(lambda x: (x @ x).sum() + 1)
        x = gr.eval(gr.rand([32, 32]))
        for _ in range(2):
            value = compiled(x)
            profile = executor.profile
            assert profile is not None
            assert len(profile.kernels) >= 1
            assert profile.stages["execution"] > 0
        np.testing.assert_allclose(value.item(), (x.numpy() @ x.numpy()).sum() + 1, rtol=1e-5)


def test_is_lazy_eval_of_a_graph_and_repr_of_donated_tensors():
    assert gr.is_lazy(gr.ones([2]) + 1)
    assert not gr.is_lazy(3)
    assert not gr.is_lazy(np.ones(2))
    with gr.graph_scope() as graph:
        a, b = gr.ones([2]) + 1, gr.rand([3]) * 2
        assert gr.eval(graph) is graph
    assert a.state() == b.state() == "available"
    donating = gr.compile(lambda x: x + 1, donate=0)
    x = gr.ones([4]).eval() * 3
    gr.eval(x)
    donating(x)
    assert repr(x) == "tensor(donated, f32[4])"
    assert "donated" in str(x)


class Lying(list):
    def __len__(self):
        return 2**62


def test_lists_with_a_wrong_length_are_safe():
    from girih import _girih

    t = gr.ones([2]) + 1
    _girih.eval_many(Lying([t]))
    assert t.state() == "available"
    _girih.capture(Lying([t]), Lying([]), [], [], [])
    assert _girih.scan_length(Lying([t]), None) == 2
    _girih.graph_stats(Lying([t]))
    with pytest.raises(gr.GirihError):
        _girih.record_while_loop(Lying([_girih.Body(), _girih.Body()]), Lying([t]), [])


def test_a_failed_step_is_rolled_back():
    class Net(nn.Module):
        def __init__(self):
            self.table = nn.Embedding(5, 4)
            self.norm = nn.BatchNorm1d(4)
            self.again = self.table.weight

        def forward(self, i):
            return self.norm(self.table(i)).sum()

    model, optimizer = gr.eval(Net()), gr.optim.Adam(0.1)
    step = nn.value_and_grad(model, model)
    _, grads = step(gr.asarray([1, 2]))
    optimizer.update(model, grads)
    gr.eval(model, optimizer.state)
    before = {name: t.tolist() for name, t in model.state_dict().items()}
    for _ in range(2):
        _, grads = step(gr.asarray([1, 7]))
        optimizer.update(model, grads)
    with pytest.raises(IndexError):
        gr.eval(model)
    assert gr.rollback(model, optimizer) == (model, optimizer)
    gr.eval(model, optimizer.state)
    assert {name: t.tolist() for name, t in model.state_dict().items()} == before
    assert model.again is model.table.weight
    assert optimizer.state["step"].item() == 1
    _, grads = step(gr.asarray([1, 2]))
    optimizer.update(model, grads)
    gr.eval(gr.rollback(gr.eval(model)), optimizer.state)  # An evaluated state is not rolled back.
    assert optimizer.state["step"].item() == 2
    with pytest.raises(gr.InvalidArgumentError, match="expected modules"):
        gr.rollback(3)


def test_names_read_by_code_agree_with_dis() -> None:
    import dis
    import inspect
    import sys
    import types

    from girih import references

    def expected(code: types.CodeType) -> tuple[set[str], set[str]]:
        read, attributes = set(), set()
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
                read.add(instruction.argval)
            elif instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")):
                attributes.add(instruction.argval)
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                more = expected(inner)
                read |= more[0]
                attributes |= more[1]
        return read, attributes

    modules = [
        m for name, m in sys.modules.items() if name.startswith("girih") or name == "inspect"
    ]
    functions = [f for m in modules for f in vars(m).values() if inspect.isfunction(f)]
    assert len(functions) > 200
    for function in functions:
        names = references._names(function.__code__)
        assert (set(names.globals), set(names.attributes)) == expected(function.__code__), function


class Wrapped:
    """An array of a user's class, which holds a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


gr.tree.register(Wrapped, lambda x: ([x.tensor], None), lambda _, leaves: Wrapped(leaves[0]))


def test_arrays_of_registered_classes_are_containers_of_tensors():
    held = {"x": Wrapped(gr.asarray(2.0))}
    compiled = gr.compile(lambda y: held["x"].tensor * y)
    y = gr.asarray(3.0)
    assert compiled(y).item() == 6.0
    held["x"].tensor = gr.asarray(5.0)
    assert compiled(y).item() == 15.0
    held["x"] = Wrapped(gr.asarray(7.0))
    assert compiled(y).item() == 21.0
    assert compiled.num_programs == 1
