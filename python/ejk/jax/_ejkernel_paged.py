"""ejkernel's functions of paged caches, by page_attention, ragged_page_attention and ragged_page_attention_v3.

Where keys and values lie in caches apart, a step of a few new tokens a sequence reads them in place: each token is a sequence of page_attention.
A larger one first copies the pages that its tables name, or the caches if those are smaller, into the layout of ragged_page_attention.
"""

import jax.numpy as jnp

from ._call import named_call
from ._ejkernel_words import given, int32, is_positive, refuse

_FEW = 4  # new tokens a sequence whose keys are rather read again than copied


def _left(sliding_window):
    """The paged kernels there count a window's keys, the query's own among them."""
    return None if sliding_window is None else int(sliding_window) - 1


def _odd_window(sliding_window):
    return "a sliding_window that is not one number above 0", not (sliding_window is None or is_positive(sliding_window))


def _odd_cache(queries, cache):
    return "a cache that has neither the queries' type nor float8_e4m3fn", cache.dtype not in (queries.dtype, jnp.float8_e4m3fn)


def _ragged(queries, kv_pages, context_lens, block_tables, query_start_loc, softmax_aux):
    return given(
        queries=queries,
        kv_pages=kv_pages,
        context_lens=int32(context_lens),
        block_tables=int32(block_tables),
        query_start_loc=int32(query_start_loc),
        softmax_aux=softmax_aux,
    )


def ragged_page_attention_v2(
    queries,
    kv_pages,
    context_lens,
    block_tables,
    query_start_loc,
    num_seqs,
    *,
    softmax_scale=None,
    logits_soft_cap=None,
    compute_dtype=jnp.bfloat16,
    optimized=False,
    sliding_window=None,
    softmax_aux=None,
    mask_value=None,
    num_kv_pages_per_block=None,
    num_queries_per_block=None,
    vmem_limit_bytes=None,
    num_warps=None,
    num_stages=None,
):
    """Sums are f32 whatever compute_dtype says; tokens past the last sequence give 0."""
    refuse(_odd_window(sliding_window), _odd_cache(queries, kv_pages))
    inputs = _ragged(queries, kv_pages, context_lens, block_tables, query_start_loc, softmax_aux)
    inputs["num_seqs"] = jnp.reshape(int32(num_seqs), (1,))
    attributes = given(softmax_scale=softmax_scale, window_left=_left(sliding_window), logits_soft_cap=logits_soft_cap)
    return named_call("ragged_page_attention", inputs, attributes, ("out",))["out"]


def _padded(array, heads, dim):
    """[T, heads, dim]: zeros in what is added."""
    return jnp.pad(array, ((0, 0), (0, heads - array.shape[1]), (0, dim - array.shape[2])))


def ragged_page_attention_v3(
    queries,
    keys,
    values,
    kv_cache,
    kv_lens,
    block_tables,
    query_start_loc,
    distribution,
    softmax_aux=None,
    *,
    softmax_scale=1.0,
    sliding_window=None,
    logits_soft_cap=None,
    q_scale=None,
    k_scale=None,
    v_scale=None,
    chunk_prefill_size=None,
    num_kv_pages_per_block=None,
    num_queries_per_block=None,
    vmem_limit_bytes=None,
):
    """There a cache's rows are packed into words of 32 bits, with rows and features of padding: a view of ours, with heads of zeros.

    New rows are stored there as they are given, so k_scale is a factor of the scores and v_scale one of the result; q_scale is ours.
    """
    pages, page, words, in_word, dim = kv_cache.shape
    (tokens, heads, features), kv_heads = queries.shape, words * in_word // 2
    refuse(
        _odd_window(sliding_window),
        _odd_cache(queries, kv_cache),
        ("a cache of fewer heads or features than the keys'", kv_heads < keys.shape[1] or dim < features),
    )
    all_heads = heads // keys.shape[1] * kv_heads
    sinks = None if softmax_aux is None else jnp.pad(softmax_aux, (0, all_heads - heads))
    tables = jnp.reshape(block_tables, (kv_lens.shape[0], -1))
    cache = kv_cache.reshape(pages, page, 2 * kv_heads, dim)
    inputs = _ragged(_padded(queries, all_heads, dim), cache, kv_lens, tables, query_start_loc, sinks)
    for name, rows in (("keys", keys), ("values", values)):
        inputs[name] = _padded(rows.astype(queries.dtype), kv_heads, dim)
    inputs |= given(distribution=int32(distribution), q_scale=None if q_scale is None else jnp.float32(q_scale))
    scale = softmax_scale * (1.0 if k_scale is None else k_scale)
    attributes = given(softmax_scale=scale, window_left=_left(sliding_window), logits_soft_cap=logits_soft_cap)
    found = named_call("ragged_page_attention_v3", inputs, attributes, ("out", "kv_pages"))
    out = found["out"][:, :heads, :features]
    return out if v_scale is None else out * v_scale, found["kv_pages"].reshape(kv_cache.shape)


def _places(tokens, kv_lens, query_start_loc):
    """Of each token its sequence and its position there; positions of tokens past the last sequence are below 0."""
    token = jnp.arange(tokens, dtype=jnp.int32)
    sequence = jnp.searchsorted(query_start_loc[1:], token, side="right").astype(jnp.int32)
    position = kv_lens.at[sequence].get(mode="clip") - query_start_loc.at[sequence + 1].get(mode="clip") + token
    return sequence, jnp.where(sequence < kv_lens.shape[0], position, -1)


def _decoded(query, key_cache, value_cache, context_lens, block_tables, softmax_aux=None, wanted=("out",), **options):
    inputs = given(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        context_lens=int32(context_lens),
        block_tables=int32(block_tables),
        softmax_aux=softmax_aux,
    )
    return named_call("page_attention", inputs, given(**options), wanted)


def _together(keys, values):
    """Pages [P, ps, Hkv, D] of keys and of values as ragged_page_attention has them: a key, its value, the next key."""
    return jnp.stack([keys, values], 3).reshape(*keys.shape[:2], -1, keys.shape[3])


def _copied(key_cache, value_cache, block_tables):
    """(pages with keys and values together, tables of them)."""
    if key_cache.shape[0] <= block_tables.size:
        return _together(key_cache, value_cache), block_tables
    named = [cache.at[block_tables.reshape(-1)].get(mode="clip") for cache in (key_cache, value_cache)]
    return _together(*named), jnp.arange(block_tables.size, dtype=jnp.int32).reshape(block_tables.shape)


def _attended(queries, key_cache, value_cache, kv_lens, block_tables, query_start_loc, softmax_aux, **options):
    tokens, sequences = queries.shape[0], kv_lens.shape[0]
    if sequences == 0:
        return jnp.zeros_like(queries)
    if tokens <= _FEW * sequences:
        sequence, position = _places(tokens, kv_lens, query_start_loc)
        tables = block_tables.at[sequence].get(mode="clip")
        lengths = jnp.maximum(position + 1, 0)
        return _decoded(queries, key_cache, value_cache, lengths, tables, softmax_aux, layout="NHD", **options)["out"]
    pages, tables = _copied(key_cache, value_cache, block_tables)
    inputs = _ragged(queries, pages, kv_lens, tables, query_start_loc, softmax_aux)
    inputs["num_seqs"] = jnp.full((1,), sequences, jnp.int32)
    return named_call("ragged_page_attention", inputs, given(**options), ("out",))["out"]


def unified_attention(
    queries,
    key_cache,
    value_cache,
    kv_lens,
    block_tables,
    query_start_loc,
    alibi_slopes=None,
    qq_bias=None,
    softmax_aux=None,
    *,
    softmax_scale=None,
    causal=True,
    sliding_window=None,
    logits_soft_cap=None,
    seq_threshold_3d=None,
    num_par_softmax_segments=None,
    block_dim=128,
    num_warps=None,
    num_stages=None,
):
    """A sliding_window of 0 or less is none there."""
    refuse(
        ("causal=False", not causal),
        ("alibi_slopes", alibi_slopes is not None),
        ("qq_bias", qq_bias is not None),
        _odd_cache(queries, key_cache),
    )
    left = sliding_window - 1 if sliding_window is not None and sliding_window > 0 else None
    options = {"softmax_scale": softmax_scale, "window_left": left, "logits_soft_cap": logits_soft_cap}
    return _attended(queries, key_cache, value_cache, kv_lens, block_tables, query_start_loc, softmax_aux, **options)


def _written(cache, rows, slots):
    flat = cache.reshape(-1, *cache.shape[2:])
    return flat.at[slots].set(rows.astype(cache.dtype), mode="drop").reshape(cache.shape)


def chunked_prefill_paged_decode(
    queries,
    keys,
    values,
    key_cache,
    value_cache,
    kv_lens,
    block_tables,
    query_start_loc,
    alibi_slopes=None,
    softmax_aux=None,
    *,
    softmax_scale=None,
    causal=True,
    sliding_window=None,
    logits_soft_cap=None,
    seq_threshold_3d=None,
    num_par_softmax_segments=None,
    num_warps=None,
    num_stages=None,
):
    """XLA scatters the new rows, in place where the caches are donated; then this is unified_attention."""
    refuse(("causal=False", not causal), ("alibi_slopes", alibi_slopes is not None), _odd_cache(queries, key_cache))
    if kv_lens.shape[0] > 0:
        page = key_cache.shape[1]
        sequence, position = _places(queries.shape[0], kv_lens, query_start_loc)
        holder = block_tables.at[sequence, position // page].get(mode="clip")
        slots = jnp.where((position >= 0) & (holder >= 0), holder * page + position % page, key_cache.shape[0] * page)
        key_cache, value_cache = _written(key_cache, keys, slots), _written(value_cache, values, slots)
    out = unified_attention(
        queries,
        key_cache,
        value_cache,
        kv_lens,
        block_tables,
        query_start_loc,
        softmax_aux=softmax_aux,
        softmax_scale=softmax_scale,
        sliding_window=sliding_window,
        logits_soft_cap=logits_soft_cap,
    )
    return out, key_cache, value_cache


def prefill_page_attention(
    query,
    key_cache,
    value_cache,
    context_len,
    page_indices,
    *,
    softmax_scale=None,
    mask_value=None,
    attn_logits_soft_cap=None,
    sliding_window=None,
    block_k=None,
    num_warps=None,
    num_stages=None,
):
    """Heads lie before pages there: the sequence's own pages are copied. A query that sees no key gives 0, whatever mask_value is."""
    refuse(_odd_window(sliding_window), _odd_cache(query, key_cache))
    keys, values = (cache.at[:, page_indices].get(mode="clip").transpose(1, 2, 0, 3) for cache in (key_cache, value_cache))
    starts = jnp.asarray([0, query.shape[0]], jnp.int32)
    inputs = _ragged(query, _together(keys, values), context_len, jnp.arange(keys.shape[0])[None], starts, None)
    inputs["num_seqs"] = jnp.ones((1,), jnp.int32)
    attributes = given(softmax_scale=softmax_scale, window_left=_left(sliding_window), logits_soft_cap=attn_logits_soft_cap)
    return named_call("ragged_page_attention", inputs, attributes, ("out",))["out"]


def decode_attention(
    query,
    key_buffer,
    value_buffer,
    req_to_tokens,
    seq_lens,
    *,
    softmax_scale=None,
    num_kv_splits=16,
    page_size=1,
    logits_soft_cap=None,
    num_warps=None,
    num_stages=None,
):
    """Pages of page_size tokens: page_attention, with its log-sum-exp."""
    refuse(("a buffer that is no whole number of pages", key_buffer.shape[0] % page_size != 0), _odd_cache(query, key_buffer))
    keys, values = (buffer.reshape(-1, page_size, *buffer.shape[1:]) for buffer in (key_buffer, value_buffer))
    options = {"layout": "NHD", "softmax_scale": softmax_scale, "logits_soft_cap": logits_soft_cap}
    found = _decoded(query, keys, values, seq_lens, req_to_tokens, wanted=("out", "lse"), **options)
    return found["out"], found["lse"]


def _pages_come_first(heads, first, second):
    """That library's own rule which of a cache's first two dimensions are its pages."""
    if (heads % first == 0) != (heads % second == 0):
        return heads % second == 0
    return first >= second


def page_attention(
    query,
    key_cache,
    value_cache,
    context_lens,
    block_tables,
    attn_scale=None,
    max_context_len=None,
    num_splits=0,
    *,
    mask_value=None,
    attn_logits_soft_cap=None,
    pages_per_compute_block=None,
    megacore_mode=None,
    inline_seq_dim=True,
    sliding_window=None,
    num_warps=4,
    num_stages=3,
):
    """Caches with heads before pages are one head of so many times the pages, and a sequence one of each kv head: nothing is copied."""
    refuse(_odd_window(sliding_window), _odd_cache(query, key_cache))
    options = {"softmax_scale": attn_scale, "window_left": _left(sliding_window), "logits_soft_cap": attn_logits_soft_cap}
    sequences, heads, dim = query.shape
    if _pages_come_first(heads, *key_cache.shape[:2]):
        return _decoded(query, key_cache, value_cache, context_lens, block_tables, **options)["out"]
    kv_heads, pages, page, _ = key_cache.shape
    of_heads = jnp.arange(kv_heads, dtype=jnp.int32)[:, None] * pages + int32(block_tables)[:, None]
    found = _decoded(
        query.reshape(sequences * kv_heads, heads // kv_heads, dim),
        *(cache.reshape(kv_heads * pages, 1, page, dim) for cache in (key_cache, value_cache)),
        jnp.repeat(int32(context_lens), kv_heads),
        of_heads.reshape(sequences * kv_heads, -1),
        **options,
    )
    return found["out"].reshape(query.shape)
