"""What a hostile user gives: an error that names the argument, never a changed constant, a dangling pointer or an error of ctypes'."""

import pickle

import numpy as np
import pytest

import ejk

X = np.arange(80, dtype=np.float32).reshape(2, 5, 8)
Q = np.ones((1, 4, 2, 16), np.float32)


def test_read_only_outputs_are_refused_also_after_legal_ones():
    ejk.mean_pooling(X, out=np.zeros((2, 8), np.float32))
    constant = bytes(64)
    for out in (np.frombuffer(constant, np.float32).reshape(2, 8), np.broadcast_to(np.float32(0), (2, 8))):
        with pytest.raises(ejk.InputError, match="out is read-only"):
            ejk.mean_pooling(X, out=out)
    assert constant == bytes(64)


def test_masks_are_not_passed_over():
    masked = np.ma.masked_array(X, mask=X > 3)
    q = np.ones((1, 4, 2, 16), np.float32)
    ejk.flash_attention(q, q, q)
    for call in (lambda: ejk.mean_pooling(masked), lambda: ejk.flash_attention(q, np.ma.masked_array(q), q)):
        with pytest.raises(TypeError, match="a masked array, whose mask no kernel knows"):
            call()


def test_kinds_of_numpy_arrays():
    mean = X.mean(1)

    class Subclass(np.ndarray):
        pass

    for same in (X.view(Subclass), X.copy(order="F").transpose(2, 1, 0).copy().transpose(2, 1, 0), X[:, ::-1], np.repeat(X, 2, 1)[:, ::2]):
        if same.strides[-1] != 4:
            with pytest.raises(ejk.InputError, match="copy it into a contiguous tensor"):
                ejk.mean_pooling(same)
        else:
            assert np.allclose(ejk.mean_pooling(same), mean)
    assert np.allclose(ejk.mean_pooling(np.broadcast_to(X[:1], (4, 5, 8))), mean[0])
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(X.shape)
    assert np.allclose(ejk.mean_pooling(unaligned), mean)
    with pytest.raises(TypeError, match="numpy.float32 is no array"):
        ejk.mean_pooling(np.float32(1))
    with pytest.raises(TypeError, match="expected an array"):
        ejk.mean_pooling(np.ndarray)


@pytest.mark.parametrize(
    "kind, words, call",
    [
        (TypeError, "mean_pooling: stream must be the address of a stream, an int; found 'x'", lambda: ejk.mean_pooling(X, stream="x")),
        (TypeError, "stream must be", lambda: ejk.mean_pooling(X, stream=1.5)),
        (ejk.InputError, "cfg: Object of type set is not JSON serializable", lambda: ejk.mean_pooling(X, cfg={1, 2})),
        (ejk.InputError, "cfg: Object of type int64", lambda: ejk.mean_pooling(X, cfg={"block_c": np.int64(256)})),
        (ejk.InputError, "cfg has a NUL character", lambda: ejk.mean_pooling(X, cfg="{}\0{")),
        (ejk.InputError, "cfg: 'utf-8' codec", lambda: ejk.mean_pooling(X, cfg="\ud800")),
        (ejk.InputError, "does not fit 64 bits", lambda: ejk.mean_pooling(X, cfg={"block_c": 1 << 64})),
        (ejk.InputError, "does not fit 64 bits", lambda: ejk.mean_pooling(X, chunk_size=1 << 64)),
        (ejk.InputError, "dropout_prob is nan, expected a finite", lambda: ejk.flash_attention(Q, Q, Q, dropout_prob=float("nan"))),
        (TypeError, "a kernel's name must be a str; found None", lambda: ejk.kernel(None)),
        (ejk.InputError, "a kernel's name has a NUL", lambda: ejk.kernel("mean_pooling\0x")),
        (TypeError, "expected a function of ejk or a kernel's name; found 3", lambda: ejk.explain(3, X)),
        (TypeError, "stamp must be a str", lambda: ejk.label("mean_pooling", X, stamp=None)),
        (TypeError, "the text of a program", lambda: ejk.labels_in_hlo(b"")),
        (ejk.InputError, "set_threads: expected 0 (all) to 4096, found 1099511627776", lambda: ejk.set_threads(1 << 40)),
        (ejk.InputError, "set_threads: expected 0 (all) to 4096, found '2'", lambda: ejk.set_threads("2")),
        (ejk.InputError, "tune: Out of range float", lambda: ejk.tune("mean_pooling", X, budget=float("nan"))),
        (ejk.InputError, "the tuning option jobs must be an integer from", lambda: ejk.tune("mean_pooling", X, jobs=1 << 40)),
        (ejk.InputError, "no kernel 'zz'", lambda: ejk.overlay({}, "zz").__enter__()),
        (TypeError, "found <object object", lambda: ejk.overlay({}, object()).__enter__()),
    ],
)
def test_words(kind, words, call):
    with pytest.raises(kind) as raised:
        call()
    assert words in str(raised.value)


def test_a_chunk_longer_than_any_sequence_is_one_chunk():
    with pytest.raises(ejk.InputError, match="chunk_size must be at most 2.48; found 9223372036854775807"):
        ejk.mean_pooling(X, chunk_size=(1 << 63) - 1)
    for size in (1 << 31, 1 << 48):
        assert np.allclose(ejk.mean_pooling(X, chunk_size=size), X.mean(1, keepdims=True))
        assert np.allclose(ejk.mean_pooling(X[0], cum_seqlens=np.array([0, 5], np.int32), chunk_size=size), X[:1].mean(1))


def test_an_overlay_takes_a_function():
    with ejk.overlay({"variant": "strided"}, ejk.mean_pooling):
        assert ".strided." in ejk.explain(ejk.mean_pooling, X)["image"]["id"]


def test_results_can_be_pickled():
    q = np.ones((1, 4, 2, 16), np.float32)
    both = ejk.flash_attention(q, q, q, return_lse=True)
    again = pickle.loads(pickle.dumps(both))
    assert type(again) is type(both) and (again.lse == both.lse).all() and again._fields == both._fields
