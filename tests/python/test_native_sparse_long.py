"""Native sparse attention of 131072 tokens, one sequence and packed, and its gradient, against float64 for a sample of the tokens."""

import numpy
import pytest

import ejk

TOKENS, LEFT, DIM, HEADS = 131072, 511, 8, 2
GATES = ("g_cmp", "g_slc", "g_swa")


def call_of(ends):
    """(tensors, cum_seqlens of more than one sequence, sampled tokens)."""
    random = numpy.random.default_rng(1)
    draw = lambda *shape: random.standard_normal((1, TOKENS, *shape), dtype="f4")
    tensors = {"q": draw(HEADS, DIM), "k": draw(1, DIM), "v": draw(1, DIM), **{gate: draw(HEADS) for gate in GATES}}
    edges = [t for end in ends[1:] for t in (end - 1, min(end, TOKENS - 1))]
    sample = numpy.unique([0, 4, 63, 64, *edges, *random.integers(0, TOKENS, 20)])
    return tensors, {"cum_seqlens": numpy.asarray(ends, "i4")} if len(ends) > 2 else {}, sample


def sequence_of(token, ends):
    """(first, end) of a token's sequence; None: of none."""
    return next(((first, end) for first, end in zip(ends[:-1], ends[1:], strict=True) if first <= token < end), None)


def weights(q, keys):
    scores = keys @ q / numpy.sqrt(DIM)
    weight = numpy.exp(scores - scores.max(initial=-numpy.inf))
    return weight / max(weight.sum(), 1e-300)


class Row:
    """A token's branches in float64, of the blocks that the call selected: of each the rows of k and v that it sees, or means of `size` of them."""

    def __init__(self, tensors, selected, token, first, size):
        self.k, self.v = (tensors[name][0, :, 0].astype("f8") for name in ("k", "v"))
        local = token - first
        past = (local + 1) // size
        self.means = [x[first : first + past * size].reshape(past, size, DIM).mean(1) for x in (self.k, self.v)]
        blocks = [first + block * size + numpy.arange(size) for block in selected if block >= 0]
        seen = numpy.concatenate(blocks)
        self.rows = [seen[seen <= token], numpy.arange(max(first, token - LEFT), token + 1)]

    def branch(self, i):
        return self.means if i == 0 else [x[self.rows[i - 1]] for x in (self.k, self.v)]


def check_selected(row, q, selected, own):
    """Block 0, the own one, and of the others those of the largest importance, but for what f32 rounds."""
    chosen = selected[selected >= 0]
    assert list(chosen) == sorted(set(chosen)) and chosen[0] == 0 and chosen[-1] == own and len(chosen) == min(own + 1, len(selected))
    importance = sum(weights(head, row.means[0]) for head in q)
    others = numpy.setdiff1d(numpy.arange(own), chosen)
    if len(others):
        assert importance[chosen[(chosen > 0) & (chosen < own)]].min() > importance[others].max() * (1 - 1e-4)


def add_head(row, tensors, token, head, out):
    q = tensors["q"][0, token, head].astype("f8")
    for i, gate in enumerate(GATES):
        keys, values = row.branch(i)
        out += float(tensors[gate][0, token, head]) * (weights(q, keys) @ values)


@pytest.mark.parametrize("ends", [(0, TOKENS), (0, 5, 47111, 47111, 131000)], ids=["one", "packed"])
def test_a_sample_of_the_outputs(ends):
    size, (tensors, packed, sample) = 64, call_of(ends)
    options = {"block_size": size, "block_count": 16, "window_left": LEFT, **packed}
    out, branch_lse, selected = ejk.native_sparse_attention(**tensors, **options, return_branch_lse=True, return_selected=True)
    expected = numpy.zeros((TOKENS, HEADS, DIM))
    for token in sample:
        sequence = sequence_of(token, ends)
        if sequence is None:
            assert (selected[0, token] == -1).all() and (branch_lse[0, :, :, token] == -numpy.inf).all()
            continue
        row = Row(tensors, selected[0, token, 0], token, sequence[0], size)
        check_selected(row, tensors["q"][0, token].astype("f8"), selected[0, token, 0], (token - sequence[0]) // size)
        for head in range(HEADS):
            add_head(row, tensors, token, head, expected[token, head])
    assert numpy.linalg.norm(out[0, sample] - expected[sample]) < 1e-5 * numpy.linalg.norm(expected[sample])


def slopes(row, i, q, gate, dout):
    """Of branch i of a query: its keys, what dv of each takes of dout, what dk of each takes of q, and the gradient of the gate."""
    keys, values = row.branch(i)
    weight, product = weights(q, keys), values @ dout
    of_gate = weight @ product
    return keys, gate * weight, gate * weight * (product - of_gate) / numpy.sqrt(DIM), of_gate


def query_gradient(tensors, dout, row, token, head):
    """(dq, gradients of the gates)."""
    q, dq, of_gates = tensors["q"][0, token, head].astype("f8"), numpy.zeros(DIM), []
    for i, gate in enumerate(GATES):
        keys, _, slope, of_gate = slopes(row, i, q, float(tensors[gate][0, token, head]), dout[0, token, head].astype("f8"))
        dq += slope @ keys
        of_gates.append(of_gate)
    return dq, of_gates


def add_key_gradients(tensors, dout, row, token, head, keys, dk, dv, size):
    """What a query brings to dk and dv of some keys."""
    q, own = tensors["q"][0, token, head].astype("f8"), dout[0, token, head].astype("f8")
    for i, gate in enumerate(GATES):
        _, weight, slope, _ = slopes(row, i, q, float(tensors[gate][0, token, head]), own)
        for n, key in enumerate(keys):
            at = numpy.arange(len(weight)) == key // size if i == 0 else row.rows[i - 1] == key
            share = size if i == 0 else 1
            dk[n] += slope[at].sum() / share * q
            dv[n] += weight[at].sum() / share * own


def near(found, expected):
    return numpy.linalg.norm(found - expected) < 1e-5 * numpy.linalg.norm(expected)


def test_a_sample_of_the_gradients():
    size, (tensors, _, sample) = 64, call_of((0, TOKENS))
    options = {"block_size": size, "block_count": 16, "window_left": LEFT}
    _, branch_lse, selected = ejk.native_sparse_attention(**tensors, **options, return_branch_lse=True, return_selected=True)
    dout = numpy.random.default_rng(2).standard_normal(tensors["q"].shape, dtype="f4")
    wanted = {f"return_d{gate}": True for gate in GATES}
    found = ejk.native_sparse_attention_bwd(**tensors, **options, branch_lse=branch_lse, selected=selected, dout=dout, **wanted)
    row_of = lambda token: Row(tensors, selected[0, token, 0], token, 0, size)

    rows = [query_gradient(tensors, dout, row_of(token), token, head) for token in sample for head in range(HEADS)]
    assert near(found.dq[0, sample].reshape(-1, DIM), numpy.array([dq for dq, _ in rows]))
    for i, gate in enumerate(GATES):
        assert near(getattr(found, f"d{gate}")[0, sample].ravel(), numpy.array([of_gates[i] for _, of_gates in rows]))

    # Keys that few tokens come after.
    keys = [TOKENS - 640, TOKENS - 257, TOKENS - 65, TOKENS - 1]
    dk, dv = numpy.zeros((2, len(keys), DIM))
    for token in range(keys[0], TOKENS):
        row = row_of(token)
        for head in range(HEADS):
            add_key_gradients(tensors, dout, row, token, head, keys, dk, dv, size)
    assert near(found.dk[0, keys, 0], dk) and near(found.dv[0, keys, 0], dv)

    # All keys together: weights of a branch add up to its gate, and scores are products.
    gates = sum(tensors[gate].astype("f8") * (numpy.arange(TOKENS)[:, None] >= (size - 1 if gate == "g_cmp" else 0)) for gate in GATES)
    assert near(found.dv.sum((0, 1, 2), dtype="f8"), (gates[..., None] * dout).sum((0, 1, 2)))
    total = lambda x, y: (x.astype("f8") * y).sum()
    assert near(total(found.dk, tensors["k"]), total(found.dq, tensors["q"]))
