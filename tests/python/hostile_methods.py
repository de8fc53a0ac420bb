"""Objects whose methods ``hostile.py`` calls with hostile values."""

from __future__ import annotations

import inspect

import girih as gr

optim = gr.optim


def linear():
    return gr.nn.Linear(3, 2)


def stepped(kind, *args, **options):
    """An optimiser in PyTorch's form."""
    return kind(linear().parameters(), *args, lr=0.1, **options)


def program():
    return gr.compile(lambda x: x * 2 + 1).to_program(gr.ones((2, 3)))


def sharding():
    return gr.Sharding(gr.DeviceMesh((2, 2), ("a", "b"), devices="ghost"), gr.P("a", "b"))


def custom():
    @gr.custom_op
    def double(x):
        return x * 2

    return double


def scheduler(kind, *args):
    return lambda: kind(stepped(optim.SGD), *args)


schedules = optim.lr_scheduler
#: Functions that make an object, by the name of its class.
INSTANCES = {
    "Executor": gr.Executor,
    "ExecutorConfig": gr.ExecutorConfig,
    "Context": gr.Context,
    "Stream": gr.Stream,
    "Event": gr.Event,
    "Program": program,
    "DeviceMesh": lambda: sharding().mesh,
    "P": lambda: gr.P("a", "b"),
    "Sharding": sharding,
    "Layout": lambda: gr.layout.Layout.grid(2, 2),
    "LayoutPlanner": gr.layout.LayoutPlanner,
    "MemoryBudget": gr.layout.MemoryBudget,
    "MemoryPlan": lambda: gr.layout.plan_memory(program(), "Grid(2, 2)"),
    "Node": lambda: program().nodes[0],
    "Graph": gr.create_graph,
    "CompilationInfo": lambda: gr.compile_graph([gr.ones(2) * 2]),
    "CompiledFunction": lambda: gr.compile(lambda x: x * 2),
    "Lowered": lambda: gr.compile(lambda x: x * 2).lower(gr.ones(2)),
    "Executable": lambda: gr.compile(lambda x: x * 2).lower(gr.ones(2)).compile(),
    "Explanation": lambda: gr.explain(gr.ones(2) * 2),
    "CustomOp": custom,
    "DType": lambda: gr.float32,
    "device": lambda: gr.device("cpu"),
    "Device": lambda: gr.devices()[0],
    "LossScaler": gr.amp.LossScaler,
    "Module": gr.nn.Module,
    "Linear": linear,
    "Sequential": lambda: gr.nn.Sequential(linear(), gr.nn.ReLU()),
    "ModuleList": lambda: gr.nn.ModuleList([linear()]),
    "ModuleDict": lambda: gr.nn.ModuleDict({"a": linear()}),
    "ParameterList": lambda: gr.nn.ParameterList([gr.ones(2)]),
    "ParameterDict": lambda: gr.nn.ParameterDict({"a": gr.ones(2)}),
    "SGD": lambda: optim.SGD(0.1, momentum=0.9),
    "SGD of parameters": lambda: stepped(optim.SGD, momentum=0.9),
    "Adam": lambda: optim.Adam(0.1),
    "Adam of parameters": lambda: stepped(optim.Adam),
    "LBFGS": lambda: stepped(optim.LBFGS),
    "Muon": lambda: optim.Muon(0.1),
    "Adafactor": lambda: optim.Adafactor(0.1),
    "MasterWeights": lambda: optim.MasterWeights(optim.SGD(0.1)),
    "Accumulate": lambda: optim.Accumulate(optim.SGD(0.1), 2),
    "SkipNonFinite": lambda: optim.SkipNonFinite(optim.SGD(0.1)),
    "EMA": optim.EMA,
    "ParamGroup": lambda: stepped(optim.SGD).param_groups[0],
    "StepLR": scheduler(schedules.StepLR, 2),
    "LambdaLR": scheduler(schedules.LambdaLR, lambda epoch: 0.9**epoch),
    "OneCycleLR": scheduler(schedules.OneCycleLR, 0.1, 10),
    "ReduceLROnPlateau": scheduler(schedules.ReduceLROnPlateau),
    "SequentialLR": lambda: sequential(stepped(optim.SGD)),
    "DataLoader": lambda: gr.data.DataLoader([1, 2, 3], 2),
}


def sequential(optimizer):
    parts = [schedules.ConstantLR(optimizer), schedules.StepLR(optimizer, 1)]
    return schedules.SequentialLR(optimizer, parts, [2])


#: Methods that write files, run what they are given, are internal, or those of a dict or tuple.
LEFT_OUT = {
    "Program.save", "Executable.save", "Module.compile", "CompiledFunction.__call__",
    "CompiledFunction.lower", "CompiledFunction.to_program", "CompiledFunction.direct",
    "CompiledFunction.remember", "Linear.forward", "Linear.__call__", "Module.__call__",
    "ExecutorConfig.__getitem__", "Device.__getitem__",
    "ParamGroup.pop", "ParamGroup.setdefault", "ParamGroup.update", "ParamGroup.get",
    "ExecutorConfig.count", "ExecutorConfig.index", "Device.count", "Device.index",
}  # fmt: skip
#: Values with which a method is called for its other parameters, by the parameter's name.
PLAIN = {
    "graph": gr.current_graph,
    "output_ids": lambda: [0],
    "output_id": lambda: 0,
    "nodes": lambda: [0],
    "node": lambda: 0,
    "key": lambda: "0",
    "value": linear,
    "values": dict,
    "index": lambda: 0,
    "target": lambda: {"w": gr.ones((2, 3))},
    "grads": lambda: {"w": gr.ones((2, 3))},
    "parameters": lambda: {"w": gr.ones((2, 3))},
    "rule": lambda: lambda node, *operands: None,
    "hook": lambda: lambda *args: None,
    "fn": lambda: lambda module: None,
    "event": gr.Event,
    "end": gr.Event,
    "stream": gr.Stream,
    "executor": gr.Executor,
    "metrics": lambda: 0.5,
    "epoch": lambda: 1,
    "group": lambda: 0,
    "module": linear,
    "name": lambda: "fresh",
}


#: Parameters that are functions of the user.
FUNCTIONS = {"rule", "fn", "hook", "closure", "fun"}


class Method:
    """A method of an object that each call makes anew, because calls may change it."""

    def __init__(self, make, name):
        self.make, self.name = make, name

    def __call__(self, *args, **kwargs):
        found = getattr(self.make(), self.name)(*args, **kwargs)
        return None if inspect.isfunction(found) else found


def methods():
    """Every public method of the objects, by its name, with its parameters."""
    found = {}
    for label, make in INSTANCES.items():
        instance = make()
        cls = type(instance)
        for name in dir(cls):
            special = name in ("__getitem__", "__setitem__", "__delitem__", "__call__")
            if name.startswith("_") and not special:
                continue
            if isinstance(inspect.getattr_static(cls, name), property):
                continue
            value = getattr(instance, name, None)
            left_out = {f"{base.__name__}.{name}" for base in cls.__mro__} & LEFT_OUT
            if not callable(value) or inspect.isclass(value) or left_out:
                continue
            try:
                parameters = list(inspect.signature(value).parameters.values())
            except (TypeError, ValueError):
                continue
            found[f"{label}.{name}"] = Method(make, name), parameters
    return found
