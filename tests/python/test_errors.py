"""What is refused, by which class, in which words. Nothing is written before an error."""

import numpy as np
import pytest

import ejk

Q = np.zeros((1, 4, 2, 16), np.float32)


@pytest.mark.parametrize(
    "kind, words, call",
    [
        (ejk.InputError, "flash_attention: causal must be bool; found 'yes'", lambda: ejk.flash_attention(Q, Q, Q, causal="yes")),
        (ejk.InputError, "flash_attention: window_left must be int; found 1.5", lambda: ejk.flash_attention(Q, Q, Q, window_left=1.5)),
        (ejk.InputError, "flash_attention: dropout_seed must be int; found 'x'", lambda: ejk.flash_attention(Q, Q, Q, dropout_seed="x")),
        (ejk.InputError, "flash_attention: window_left must be int; found [1]", lambda: ejk.flash_attention(Q, Q, Q, window_left=[1])),
        (ejk.InputError, "window_left must be -1 (unbounded) or more; found -2", lambda: ejk.flash_attention(Q, Q, Q, window_left=-2)),
        (ejk.InputError, "k has type f16, expected f32 (the type of q)", lambda: ejk.flash_attention(Q, Q.astype(np.float16), Q)),
        (ejk.InputError, "dimension 1 is 3", lambda: ejk.flash_attention(Q, Q, Q[:, :3])),
        (ejk.InputError, "q: no kernel takes NumPy elements of dtype('complex64')", lambda: ejk.flash_attention(Q.astype("c8"), Q, Q)),
        (ejk.InputError, "q: no kernel takes NumPy elements of dtype('>f4')", lambda: ejk.flash_attention(Q.astype(">f4"), Q, Q)),
        (ejk.InputError, "dtype('complex64'); it takes f32, f16, bf16", lambda: ejk.flash_attention(Q.astype("c8"), Q, Q)),
        (ejk.InputError, "flash_attention: cfg is not JSON", lambda: ejk.flash_attention(Q, Q, Q, cfg="{")),
        (ejk.InputError, "flash_attention: cfg must be a JSON object; found '[]'", lambda: ejk.flash_attention(Q, Q, Q, cfg="[]")),
        (ejk.InputError, "flash_attention: stream is 4; NumPy arrays are on the host", lambda: ejk.flash_attention(Q, Q, Q, stream=4)),
        (ejk.InputError, "does not fit 64 bits", lambda: ejk.flash_attention(Q, Q, Q, dropout_prob=0.5, dropout_seed=2**64)),
        (ejk.InputError, "it is of the form 'packed', which needs cum_seqlens_q and cum_seqlens_k", lambda: ejk.flash_attention(Q[0], Q[0], Q[0])),
        (TypeError, "flash_attention: v: expected an array", lambda: ejk.flash_attention(Q, Q, [1])),
        (TypeError, "flash_attention: q: expected an array", lambda: ejk.flash_attention(None, Q, Q)),
        (ejk.InputError, "this call's cfg", lambda: ejk.flash_attention(Q, Q, Q, cfg={"variant": "fastest"})),
        (ejk.InputError, "no kernel 'softmax'; the stores have", lambda: ejk.kernel("softmax")),
        (ejk.InputError, "comes too late", lambda: (ejk.info(), ejk.add_store(str(ejk.__path__[0]) + "/store"))),
        (ejk.InputError, "expected 0 (all) to 4096, found -1", lambda: ejk.set_threads(-1)),
        (TypeError, "missing a required argument", lambda: ejk.kernel("mean_pooling")()),
    ],
)
def test_words(kind, words, call):
    with pytest.raises(kind) as raised:
        call()
    assert words in str(raised.value)


def test_classes_are_the_built_in_ones_too():
    with pytest.raises(ValueError):
        ejk.flash_attention(Q, Q, Q, window_left=-2)
    with pytest.raises(ejk.EjkError):
        ejk.flash_attention(Q, Q, Q, window_left=-2)


def test_nothing_is_written_before_an_error():
    out = np.full(Q.shape, np.nan, np.float32)
    with pytest.raises(ejk.InputError):
        ejk.flash_attention(Q, Q, Q, out=out, window_left=-2)
    assert np.isnan(out).all()


def test_outputs_must_be_writable_and_of_the_right_shape():
    out = np.zeros(Q.shape, np.float32)
    out.flags.writeable = False
    with pytest.raises(ejk.InputError, match="out is read-only"):
        ejk.flash_attention(Q, Q, Q, out=out)
    with pytest.raises(ejk.InputError, match="out has shape"):
        ejk.flash_attention(Q, Q, Q, out=np.zeros((1, 4, 2, 8), np.float32))
    with pytest.raises(ejk.InputError, match="shares memory|overlap"):
        ejk.flash_attention(Q, Q, Q, out=Q)


def test_an_error_leaves_later_calls_alone():
    for _ in range(3):
        with pytest.raises(ejk.InputError):
            ejk.flash_attention(Q, Q, Q, dropout_prob=2.0)
        assert ejk.flash_attention(Q, Q, Q).shape == Q.shape
