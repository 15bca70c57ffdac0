"""Which config a call gets, from Python: cfg, overlays, policies, tuning, explanations, labels, counters."""

import asyncio
import contextlib
import pickle
import threading

import numpy as np
import pytest

import ejk

X = np.random.default_rng(1).standard_normal((4, 64, 96)).astype(np.float32)


def image(**options):
    return ejk.explain(ejk.mean_pooling, X, **options)["image"]["id"]


def test_cfg_overrides_one_call():
    assert ".strided." in image(cfg={"variant": "strided"}) and ".strided." not in image()
    assert np.allclose(ejk.mean_pooling(X, cfg={"variant": "strided"}), X.mean(1), atol=1e-5)
    assert np.allclose(ejk.mean_pooling(X, cfg='{"variant": "strided"}'), X.mean(1), atol=1e-5)


def test_overlays_nest_and_are_this_threads():
    with ejk.overlay({"variant": "strided"}, "mean_pooling"):
        assert ".strided." in image()
        with ejk.overlay({"variant": "rows"}):
            assert ".rows." in image()
        assert ".strided." in image()
        seen = []
        other = threading.Thread(target=lambda: seen.append(image()))
        other.start(), other.join()
        assert ".rows." in seen[0]
    assert ".rows." in image()


def variants():
    return image().split(".")[1]


def test_tasks_of_a_thread_have_their_own_overlays():
    async def task(variant, told):
        with ejk.overlay({"variant": variant}, "mean_pooling"):
            for _ in range(3):
                told.append(variants())
                await asyncio.sleep(0)
                told.append(await asyncio.to_thread(variants))
        told.append(variants())

    async def both():
        told = [], []
        await asyncio.gather(task("strided", told[0]), task("rows", told[1]))
        return told

    assert asyncio.run(both()) == (["strided"] * 6 + ["rows"], ["rows"] * 7)


def test_plans_of_tasks_that_alternate_are_kept():
    async def task(variant):
        with ejk.overlay({"variant": variant}, "mean_pooling"):
            for _ in range(20):
                ejk.mean_pooling(X)
                await asyncio.sleep(0)

    async def both():
        await asyncio.gather(task("strided"), task("rows"))

    before = ejk.counters()["plans"]
    asyncio.run(both())
    assert ejk.counters()["plans"] - before < 10  # of 40 calls


def test_a_generators_overlay_is_its_own():
    def generator():
        with ejk.overlay({"variant": "strided"}, "mean_pooling"):
            yield variants()
            with ejk.policy(cache_miss_fallback="error"):
                yield variants()

    one, other = generator(), generator()
    assert [next(one), variants(), next(other), next(one), variants()] == ["strided", "rows", "strided", "strided", "rows"]
    with ejk.overlay({"variant": "strided"}):
        one.close()
        assert variants() == "strided"
        del other
        assert variants() == "strided"
    assert variants() == "rows"


def test_a_context_manager_of_ones_own_holds_for_its_body():
    @contextlib.contextmanager
    def strided():
        with ejk.overlay({"variant": "strided"}, "mean_pooling"):
            yield

    with strided():
        assert variants() == "strided"
    with contextlib.ExitStack() as stack:
        stack.enter_context(strided())
        stack.enter_context(ejk.policy(cache_miss_fallback="heuristics"))
        assert variants() == "strided"
    assert variants() == "rows"


def test_what_a_scope_refuses_leaves_nothing_open():
    with pytest.raises(ejk.InputError):
        with ejk.overlay({"variant": "strided"}, "no_kernel"):
            pass
    scope = ejk.overlay({"variant": "strided"})
    with scope:
        with pytest.raises(RuntimeError, match="open already"):
            scope.__enter__()
        assert variants() == "strided"
    with scope:
        assert variants() == "strided"
    assert variants() == "rows"


def test_policies_hold_for_calls_that_were_made_before():
    x = np.ones((1, 1, 1), np.float32)  # far from all that was ever measured
    ejk.mean_pooling(x)
    with ejk.policy(cache_miss_fallback="error"):
        with pytest.raises(ejk.UnsupportedError, match="no tier has a config"):
            ejk.mean_pooling(x)
    assert ejk.mean_pooling(x) == 1
    with pytest.raises(ejk.InputError, match="expected autotune, heuristics or error"):
        with ejk.policy(cache_miss_fallback="guess"):
            pass


def test_tuning_measures_remembers_and_leaves_the_arrays_alone():
    x = X[:, :50].copy()
    before = x.copy()
    record = ejk.tune(ejk.mean_pooling, x, budget=4)
    assert record["median_us"] > 0 and record["measured"] >= 1 and "not_kept" not in record
    assert (x == before).all()
    told = ejk.explain(ejk.mean_pooling, x)
    assert told["evidence"] and any(tier["tier"] == "memory" and tier.get("config") for tier in told["tiers"]), told["tiers"]
    assert np.allclose(ejk.mean_pooling(x), x.mean(1), atol=1e-5)


def test_explanations_and_labels():
    told = ejk.explain("mean_pooling", X)
    assert told["kernel"] == "mean_pooling" and told["variants"] and told["tiers"]
    label = ejk.label(ejk.mean_pooling, X)
    assert label.startswith("ejk:mean_pooling:") and len(label.rpartition(":")[2]) == 16
    assert ejk.labels_in_hlo(f'op_name="jit(f)/{label}/call"') == [label]
    assert '"x"' in ejk.label(ejk.mean_pooling, X, stamp="json")


def test_counters_and_threads():
    x = np.ones((7, 3, 11), np.float32)
    ejk.mean_pooling(x)
    before = ejk.counters()
    for _ in range(5):
        ejk.mean_pooling(x)
    assert ejk.counters() == before
    ejk.set_threads(1)
    assert np.allclose(ejk.mean_pooling(x), 1)
    ejk.set_threads(0)


def test_functions_made_at_run_time_can_be_pickled():
    made = pickle.loads(pickle.dumps(ejk.kernel("mean_pooling")))
    assert (made(X) == ejk.mean_pooling(X)).all() and made.__name__ == "mean_pooling" and "mean_pooling" in repr(made)


def test_functions_made_at_run_time_are_the_generated_ones():
    made = ejk.kernel("mean_pooling")
    assert (made(X, chunk_size=16) == ejk.mean_pooling(X, chunk_size=16)).all()
    assert list(made.__signature__.parameters)[:1] == ["x"] and "chunk_size" in made.__doc__
