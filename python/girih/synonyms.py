"""Aliases and hints for names of NumPy, PyTorch and JAX.

For an alias, ``girih.NAME`` is the object under its name in Girih. A hint is the text of the
AttributeError for a name whose function differs, or that is a method, a module or another idiom in
Girih.
"""

from __future__ import annotations

# Other names of the same functions.
ALIASES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "array": "asarray",
    "as_tensor": "asarray",
    "asanyarray": "asarray",
    "bmm": "matmul",
    "conjugate": "conj",
    "det": "linalg.det",
    "div": "divide",
    "eq": "equal",
    "fabs": "abs",
    "fix": "trunc",
    "from_numpy": "asarray",
    "ge": "greater_equal",
    "gt": "greater",
    "inverse": "linalg.inv",
    "invert": "bitwise_not",
    "jit": "compile",
    "le": "less_equal",
    "left_shift": "bitwise_left_shift",
    "lt": "less",
    "mm": "matmul",
    "mod": "remainder",
    "movedim": "moveaxis",
    "mul": "multiply",
    "ne": "not_equal",
    "neg": "negative",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "row_stack": "vstack",
    "sub": "subtract",
    "swapdims": "swapaxes",
    "trapz": "trapezoid",
    "true_divide": "divide",
}

# The replacement for each name.
HINTS = {
    "addmm": "x + a @ b",
    "autograd": "girih.grad and girih.value_and_grad, which transform functions",
    "average": "(x * weights).sum(axis) / weights.sum(), or girih.mean",
    "backends": "girih.set_num_threads and the environment variables of the documentation",
    "block": "girih.concat of girih.concat",
    "block_until_ready": "girih.eval",
    "choose": "girih.where, or girih.take_along_axis",
    "chunk": "girih.array_split(x, sections, axis)",
    "copy": "the tensor itself: tensors are values",
    "cross": "girih.linalg.cross",
    "cuda": "nothing: all tensors are on the CPU",
    "default_rng": "girih.random, with key= or girih.manual_seed",
    "delete": "x[mask], or girih.concat of the parts to keep",
    "device_get": "Tensor.numpy()",
    "device_put": "Tensor.to(device)",
    "default_device": "girih.device",
    "divmod": "girih.floor_divide and girih.remainder",
    "dsplit": "girih.split(x, sections, axis=2)",
    "einops": "einops itself, which takes Girih's tensors",
    "eigh": "girih.linalg.eigh",
    "expm": "girih.linalg.expm",
    "float_power": "x.astype(girih.float64) ** y",
    "fmax": "girih.where(girih.isnan(x), y, girih.maximum(x, y)), roles exchanged for NaN in y",
    "fmin": "girih.where(girih.isnan(x), y, girih.minimum(x, y)), roles exchanged for NaN in y",
    "frombuffer": "girih.asarray(numpy.frombuffer(...))",
    "fromfile": "girih.load, or girih.asarray(numpy.fromfile(...))",
    "fromfunction": "the function of girih.indices(shape)",
    "fromiter": "girih.asarray(list(...))",
    "functional": "girih.nn.functional",
    "gradient": "girih.diff for differences; girih.grad for derivatives",
    "heaviside": "girih.where(x == 0, value, (x > 0).astype(x.dtype))",
    "hsplit": "girih.split(x, sections, axis=1)",
    "identity": "girih.eye(n)",
    "index_select": "girih.take(x, indices, axis)",
    "insert": "girih.concat of the parts",
    "is_tensor": "isinstance(x, girih.Tensor)",
    "jacobian": "girih.jacrev(f)(x), or girih.jacfwd(f)(x) if f has more outputs than inputs",
    "jnp": "girih itself",
    "lax": "girih.cond, girih.scan, girih.while_loop, girih.fori_loop and girih.switch",
    "lexsort": "girih.argsort from the last key to the first, which keeps the order of equals",
    "logspace": "base ** girih.linspace(start, stop, num)",
    "geomspace": "girih.exp(girih.linspace(math.log(start), math.log(stop), num))",
    "masked_fill": "girih.where(mask, value, x)",
    "masked_select": "x[mask]",
    "msort": "girih.sort(x, axis=0)",
    "multinomial": "girih.random.choice(n, shape, p=weights); counts: random.multinomial",
    "narrow": "x[start : start + length]",
    "ndarray": "girih.Tensor",
    "ndim": "x.ndim",
    "norm": "girih.linalg.norm",
    "normal": "girih.random.normal(shape, loc=..., scale=...)",
    "numel": "x.size",
    "pinv": "girih.linalg.pinv",
    "place": "girih.where(mask, values, x)",
    "pmap": "Tensor.to(device), with girih.vmap on each device",
    "poly1d": "girih.polyval and girih.polyfit",
    "ptp": "x.max(axis) - x.min(axis)",
    "put": "x.at[indices].set(values)",
    "putmask": "girih.where(mask, values, x)",
    "qr": "girih.linalg.qr",
    "rand_like": "girih.rand(x.shape, dtype=x.dtype)",
    "randn_like": "girih.randn(x.shape, dtype=x.dtype)",
    "randperm": "girih.random.permutation(n)",
    "resize": "x.reshape(shape), or girih.pad",
    "rollaxis": "girih.moveaxis",
    "save_state_dict": "girih.save(path, module)",
    "scatter": "girih.put_along_axis, or x.at[indices].set(values)",
    "seed": "girih.manual_seed",
    "select": "girih.where, nested; of PyTorch, girih.take(x, index, axis)",
    "set_default_dtype": "dtype=, where a tensor is made: float32 is the default",
    "shape": "x.shape",
    "shard_map": "girih.vmap with axis_name, whose collectives are the same",
    "sinc": "girih.where(x == 0, 1, girih.sin(pi * x) / (pi * x))",
    "size": "x.size",
    "slogdet": "girih.linalg.slogdet",
    "solve": "girih.linalg.solve",
    "svd": "girih.linalg.svd",
    "take_along_dim": "girih.take_along_axis",
    "tree_map": "girih.tree.map",
    "tree_util": "girih.tree",
    "typename": "x.dtype",
    "vectorize": "the function of whole tensors",
    "view": "x.reshape(shape)",
    "vsplit": "girih.split(x, sections, axis=0)",
}

# Hints for girih.random.
RANDOM_ALIASES = {
    "PRNGKey": "key",
    "randn": "normal",
    "seed": "manual_seed",
    "standard_normal": "normal",
}
RANDOM_HINTS = {
    "rand": "girih.random.uniform(shape)",
    "random_integers": "girih.random.randint(low, high + 1, shape)",
    "ball": "girih.random.normal, divided by its norm",
    "chisquare": "2 * girih.random.gamma(df / 2, shape)",
    "default_rng": "girih.random itself, with key= or manual_seed",
    "lognormal": "girih.exp of girih.random.normal",
    "multivariate_normal": "mean + girih.random.normal(shape) @ girih.linalg.cholesky(cov).mT",
    "permuted": "girih.random.permutation(x, axis, independent=True)",
    "rayleigh": "scale * girih.sqrt(2 * girih.random.exponential(shape))",
    "random": "girih.random.uniform(shape)",
    "random_sample": "girih.random.uniform(shape)",
    "Generator": "girih.random itself, with key= or manual_seed",
    "RandomState": "girih.random itself, with key= or manual_seed",
    "shuffle": "x = girih.random.permutation(x): tensors are values",
    "standard_exponential": "girih.random.exponential(shape)",
    "weibull": "girih.random.exponential(shape) ** (1 / a)",
}


#: What PyTorch's modules have and this package's have not, or have in another form.
MODULE_HINTS = {
    "cuda": "model.to(device), with a device of girih.devices()",
    "cpu": "model.to('cpu')",
    "xpu": "model.to(device)",
    "ipu": "model.to(device)",
    "mtia": "model.to(device)",
    "T_destination": "dict[str, girih.Tensor]",
    "dump_patches": "nothing: state dicts have no versions",
    "call_super_init": "nothing: the constructor of Module takes no arguments",
    "get_extra_state": "a buffer, which state_dict has, or gr.save of a dict of your own",
    "set_extra_state": "a buffer, which load_state_dict loads, or gr.load",
    "register_full_backward_pre_hook": "Tensor.register_hook on the result of the module",
    "register_state_dict_post_hook": "a subclass that defines state_dict",
    "register_load_state_dict_pre_hook": "a subclass that defines load_state_dict",
    "type": "model.astype(dtype)",
    "share_memory": "nothing: the processes of girih.data load data, not models",
    "to_empty": "model.to(device)",
    "load_checkpoint": "model.load_state_dict(girih.load(path))",
    "save": "girih.save(path, model)",
    "save_pretrained": "girih.save(path, model)",
    "register_full_backward_hook": "Tensor.register_hook on the result of the module",
    "register_backward_hook": "Tensor.register_hook on the result of the module",
    "register_state_dict_pre_hook": "a subclass that defines state_dict",
    "register_load_state_dict_post_hook": "a subclass that defines load_state_dict",
    "_parameters": "dict(model.named_parameters(recurse=False))",
    "_buffers": "dict(model.named_buffers(recurse=False))",
    "_modules": "dict(model.named_children())",
    "fit": "a loop over girih.data.DataLoader; see the guide on training",
    "init": "the constructor: parameters are made when the module is",
    "variables": "model.parameters_tree() and model.buffers_tree()",
}

#: What PyTorch's and Optax's optimisers have and this package's have not, or in another form.
OPTIMIZER_HINTS = {
    "defaults": "optimizer.param_groups[0]",
    "register_step_pre_hook": "a call before optimizer.step()",
    "register_step_post_hook": "a call after optimizer.step()",
    "register_load_state_dict_pre_hook": "a call before optimizer.load_state_dict",
    "register_load_state_dict_post_hook": "a call after optimizer.load_state_dict",
    "register_state_dict_pre_hook": "a call before optimizer.state_dict()",
    "register_state_dict_post_hook": "a call after optimizer.state_dict()",
    "profile_hook_step": "girih.profile()",
    "OptimizerPreHook": "a call before optimizer.step()",
    "OptimizerPostHook": "a call after optimizer.step()",
    "minimize": "loss.backward() and optimizer.step()",
    "apply_gradients": "optimizer.update(model, grads)",
    "apply_updates": "optimizer.apply(grads, state, parameters)",
    "scheduler": "girih.optim.lr_scheduler, or a function as learning_rate",
    "consolidate_state_dict": "optimizer.state_dict()",
}


def missing_attribute(owner: str, name: str, hints: dict[str, str]) -> AttributeError:
    """The error for a name that an object does not have."""
    text = f"{owner!r} object has no attribute {name!r}"
    if name in hints:
        text += f"; here that is {hints[name]}"
    return AttributeError(text, name=name)


def missing(module: str, name: str, hints: dict[str, str]) -> AttributeError:
    """The error for a name that a module does not have."""
    text = f"module {module!r} has no attribute {name!r}"
    if name in hints:
        text += f"; here that is {hints[name]}"
    return AttributeError(text, name=name)
