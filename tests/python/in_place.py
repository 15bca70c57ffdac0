"""Kernels that update an input in place, and one whose gradient takes several steps, those of tests/in_place: a program of its own, since a
store is added before all else.

    python in_place.py numpy|jax|torch"""

import inspect
import os
import pathlib
import sys

import numpy

import ejk

STORE = pathlib.Path(__file__).parents[1] / "in_place" / "data"
ejk.add_store(str(STORE))
store_rows, leaky_sum, rms_scale = map(ejk.kernel, ("store_rows", "leaky_sum", "rms_scale"))
random = numpy.random.default_rng(5)


def draw(*shape):
    return random.standard_normal(shape).astype("f4")


def scanned(x, state, decay=0.5):
    out = []
    for t in range(x.shape[1]):
        state = decay * state + x[:, t]
        out.append(state)
    return numpy.stack(out, 1), state


def refused(kind, words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")


def close(found, expected):
    numpy.testing.assert_allclose(numpy.asarray(found), numpy.asarray(expected), rtol=1e-5, atol=1e-5)


def numpy_checks():
    pages, rows = draw(6, 3), draw(2, 3)
    expected = pages.copy()
    expected[3:5] = rows
    assert store_rows(rows, pages, start=3) is pages
    close(pages, expected)

    x, state = draw(2, 5, 3), draw(2, 3)
    before = state.copy()
    result = leaky_sum(x, state)
    assert result.final_state is state and result._fields == ("out", "final_state")
    for found, wanted in zip(result, scanned(x, before)):
        close(found, wanted)

    # The output may be given: the input itself, or a view of all of it.
    out = numpy.empty_like(x)
    assert leaky_sum(x, state, final_state=state, out=out).out is out
    leaky_sum(x, state, final_state=state[:])
    refused(ejk.InputError, "final_state is the memory of state, which the call updates", leaky_sum, x, state, final_state=state.copy())
    refused(TypeError, "pages", store_rows, rows, pages, **{"pages": pages})  # by position it is given already

    before = state.copy()
    state.flags.writeable = False
    refused(ejk.InputError, "leaky_sum: state is read-only, and the call updates it", leaky_sum, x, state)
    state.flags.writeable = True
    leaky_sum(x, state)
    state.flags.writeable = False  # also where such a call was seen before
    refused(ejk.InputError, "state is read-only", leaky_sum, x, state)
    close(state, scanned(x, before)[1])
    state.flags.writeable = True
    wide = numpy.broadcast_to(draw(3), (2, 3))
    wide.flags.writeable = True
    refused(ejk.InputError, "updated input state has shape [2, 3] and strides [0, 1]: its elements overlap", leaky_sum, x, wide)
    shared = draw(2, 5, 3)
    refused(ejk.InputError, "updated input state overlaps input x in memory", leaky_sum, shared, shared[:, 0])
    refused(ejk.InputError, "updated input state overlaps output out in memory", leaky_sum, x, shared[:, 0], out=shared)

    strided = draw(2, 2, 3)[:, 1]  # an updated view of a larger array
    before = strided.copy()
    leaky_sum(x, strided)
    close(strided, scanned(x, before)[1])
    assert [each["name"] for each in ejk.explain(leaky_sum, x, state)["variants"]] == ["loop", "threads"]


def numpy_saved_checks():
    """What is for the gradient alone is no output of the function, and is made for who asks for it by name."""
    from ejk._call import prepare
    from ejk._numpy_arrays import view

    x = draw(5, 7)
    factors = 1 / numpy.sqrt((x * x).mean(1) + 1e-6)
    close(rms_scale(x), factors[:, None] * x)
    assert not [name for name in inspect.signature(rms_scale).parameters if "factors" in name]
    out, saved = numpy.empty_like(x), numpy.empty(5, "f4")
    views = {"x": view(x), "out": view(out), "factors": view(saved)}
    prepare("rms_scale", views, {}).run([each.pointer for each in views.values()])
    close(saved, factors)


def rms(x):
    return x * ((x * x).mean(1, keepdims=True) + 1e-6) ** -0.5


def jax_saved_checks():
    import jax

    import ejk.jax  # noqa: F401

    x, weight = draw(5, 7), draw(5, 7)

    def grad(function):
        return jax.grad(lambda x: (weight * function(x)).sum())

    close(jax.jit(grad(rms_scale))(x), grad(rms)(x))
    close(grad(rms_scale)(x), grad(rms)(x))
    close(jax.jit(jax.vmap(jax.grad(lambda x, w: (w * rms_scale(x)).sum())))(x[None], weight[None])[0], grad(rms)(x))
    forward, backward = (jax.jit(each).lower(x).as_text() for each in (rms_scale, grad(rms_scale)))
    assert "factors" not in forward and "factors" in backward and "row_dots" in backward


def torch_saved_checks():
    import torch

    x, weight = torch.tensor(draw(5, 7)), torch.tensor(draw(5, 7))
    assert isinstance(rms_scale(x), torch.Tensor)

    def grad(function):
        given = x.clone().requires_grad_()
        return torch.autograd.grad((weight * function(given)).sum(), given)[0]

    expected = grad(rms)
    torch.testing.assert_close(grad(rms_scale), expected)
    torch.testing.assert_close(grad(torch.compile(rms_scale, fullgraph=True)), expected)
    torch.testing.assert_close(torch.func.grad(lambda x: (weight * rms_scale(x)).sum())(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(rms_scale, fullgraph=True)(x), rms(x))


def jax_checks():
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, PartitionSpec

    import ejk.jax  # noqa: F401

    x, state, pages, rows = draw(2, 5, 3), draw(2, 3), draw(6, 3), draw(2, 3)
    expected = scanned(x, state)
    jx, jstate = jnp.asarray(x), jnp.asarray(state)
    for function in (leaky_sum, jax.jit(leaky_sum)):
        result = function(jx, jstate)
        assert result._fields == ("out", "final_state")
        close(result.out, expected[0]), close(result.final_state, expected[1]), close(jstate, state)  # which stays

    # Donated memory is updated where it lies: the result has its address, and the program has no copy.
    step = jax.jit(leaky_sum, donate_argnums=1)
    given = jnp.array(state)
    address = given.unsafe_buffer_pointer()
    result = step(jx, given)
    assert given.is_deleted() and result.final_state.unsafe_buffer_pointer() == address
    close(result.final_state, expected[1])
    assert "copy" not in step.lower(jx, jnp.array(state)).compile().as_text()
    assert "copy" in jax.jit(leaky_sum).lower(jx, jnp.array(state)).compile().as_text()

    # Under the input's own name; and an array that is used after the call keeps its value.
    @jax.jit
    def twice(rows, pages):
        once = store_rows(rows, pages, start=1)
        return once, store_rows(2 * rows, once, start=4), pages + 0

    once, again, first = twice(rows, pages)
    wanted = pages.copy()
    wanted[1:3] = rows
    close(once, wanted)
    wanted[4:6] = 2 * rows
    close(again, wanted), close(first, pages)

    # scan carries the state.
    def body(state, x):
        out, state = leaky_sum(x, state)
        return state, out

    last, outs = jax.jit(lambda state, xs: jax.lax.scan(body, state, xs))(state, numpy.stack([x, 2 * x]))
    one = scanned(x, state)
    two = scanned(2 * x, one[1])
    close(last, two[1]), close(outs[0], one[0]), close(outs[1], two[0])

    # vmap: folded along the batch dim, looped where the kernel has none, and with a state that all calls start from.
    xs, states = draw(3, 2, 5, 3), draw(3, 2, 3)
    result = jax.jit(jax.vmap(leaky_sum))(xs, states)
    for i in range(3):
        close(result.out[i], scanned(xs[i], states[i])[0]), close(result.final_state[i], scanned(xs[i], states[i])[1])
    result = jax.vmap(leaky_sum, in_axes=(0, None))(xs, state)
    close(result.final_state[2], scanned(xs[2], state)[1])
    stored = jax.vmap(lambda rows: store_rows(rows, pages))(numpy.stack([rows, -rows]))
    close(stored[1][:2], -rows), close(stored[0][2:], pages[2:])

    # shard_map, and jit that cuts the batch.
    mesh = Mesh(numpy.array(jax.devices()[:2]), ("b",))
    cut = jax.shard_map(leaky_sum, mesh=mesh, in_specs=PartitionSpec("b"), out_specs=PartitionSpec("b"))
    close(jax.jit(cut)(x, state).final_state, expected[1])
    place = jax.sharding.NamedSharding(mesh, PartitionSpec("b"))
    result = jax.jit(leaky_sum)(jax.device_put(x, place), jax.device_put(state, place))
    close(result.final_state, expected[1]), close(result.out, expected[0])

    # The gradient is the spec's, from the outputs' cotangents, the updated state's too.
    def loss(function):
        def value(x, state):
            out, end = function(x, state)
            return (out * out).sum() + (3 * end).sum()

        return jax.grad(value, (0, 1))

    def plain(x, state):
        out = []
        for t in range(x.shape[1]):
            state = 0.5 * state + x[:, t]
            out.append(state)
        return jnp.stack(out, 1), state

    for found, wanted in zip(jax.jit(loss(leaky_sum))(jx, jstate), loss(plain)(jx, jstate)):
        close(found, wanted)
    refused(ejk.UnsupportedError, "store_rows has no gradient", jax.grad(lambda r: store_rows(r, pages).sum()), jnp.asarray(rows))


def torch_checks():
    import torch

    def plain(x, state):
        out = []
        for t in range(x.shape[1]):
            state = 0.5 * state + x[:, t]
            out.append(state)
        return torch.stack(out, 1), state

    x, state = torch.tensor(draw(2, 5, 3)), torch.tensor(draw(2, 3))
    expected = plain(x, state)

    def check(result, given):
        assert result.final_state is given
        torch.testing.assert_close(result.out, expected[0]), torch.testing.assert_close(given, expected[1])

    for context in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        for _ in range(2):  # anew, and as it was seen
            with context():
                given = state.clone()
                version = None if given.is_inference() else given._version
                check(leaky_sum(x, given), given)
                assert version is None or given._version == version + 1
                given = state.clone()
                out = torch.empty_like(x)
                assert leaky_sum(x, given, final_state=given, out=out).out is out
    refused(ejk.InputError, "final_state is the memory of state", leaky_sum, x, state, final_state=state.clone())

    # The operator says what it writes to.
    from ejk.torch import _operators  # noqa: F401

    schema = torch.ops.ejk.leaky_sum_updating.returns1._schema
    assert schema.is_mutable and [each.name for each in schema.arguments if each.alias_info] == ["updated"]

    # torch.compile: alone, after another write, with no other output, and the caller's tensor is the one that changes.
    @torch.compile(fullgraph=True)
    def compiled(x, state):
        state.mul_(2)
        out, end = leaky_sum(x, state)
        return out + 1, end * 2

    given = state.clone()
    wanted = plain(x, 2 * state)
    out, end = compiled(x, given)
    torch.testing.assert_close(out, wanted[0] + 1), torch.testing.assert_close(given, wanted[1]), torch.testing.assert_close(end, 2 * wanted[1])
    pages, rows = torch.zeros(6, 3), torch.tensor(draw(2, 3))

    @torch.compile(fullgraph=True)
    def stored(rows, pages):
        return store_rows(rows, pages, start=2).sum()

    torch.testing.assert_close(stored(rows, pages), rows.sum())
    torch.testing.assert_close(pages[2:4], rows)

    # autograd: the gradient is the spec's, also through the state, eagerly and compiled.
    def run(function, x, state, cut):
        x, start = x.clone().requires_grad_(), state.clone().requires_grad_()
        given = start * 1  # no leaf
        result = function(x, given)
        loss = (result[0] ** 2).sum() + (3 * (given if cut else result[1])).sum()
        return torch.autograd.grad(loss, (x, start))

    for function in (leaky_sum, torch.compile(leaky_sum, fullgraph=True)):
        for found, wanted in zip(run(function, x, state, True), run(plain, x, state, False)):
            torch.testing.assert_close(found, wanted)

    # What was saved and then updated is noticed, as after an operator of PyTorch's own.
    weight, given = torch.ones(2, 3, requires_grad=True), state.clone()
    product = (weight * given).sum()
    leaky_sum(x, given)
    refused(RuntimeError, "modified by an inplace operation", product.backward)
    leaf = state.clone().requires_grad_()
    refused(ejk.InputError, "leaky_sum: state is a leaf that requires grad, and the call updates it in place", leaky_sum, x, leaf)
    words = "detach its inputs (pages, which it updates in place, too)"
    refused(ejk.UnsupportedError, words, store_rows, rows, pages.clone().requires_grad_() * 1)

    # torch.func
    grads = torch.func.grad(lambda x: (leaky_sum(x, state.clone()).out ** 2).sum())(x)
    torch.testing.assert_close(grads, run(lambda x, s: (plain(x, s)[0], s * 0), x, state, False)[0])
    xs, states = torch.tensor(draw(3, 2, 5, 3)), torch.tensor(draw(3, 2, 3))
    wanted = [plain(one, start)[1] for one, start in zip(xs, states)]
    torch.func.vmap(leaky_sum)(xs, states)
    torch.testing.assert_close(states, torch.stack(wanted))


if __name__ == "__main__":
    os.environ.setdefault("EJKERNEL_THREADS", "2")
    for checks in ("_checks", "_saved_checks"):
        globals()[sys.argv[1] + checks]()
