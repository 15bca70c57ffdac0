# `ejk run` on a user's own safetensors: the packed form and every optional tensor, against a plain computation in Python.
import json
import math
import random

import program
from program import read_safetensors, run, write_safetensors

def attention(q, k, v, visible, score, sinks=()):
    """One row: q [D], k [n][D], v [n][Dv]; visible(j), score(j, s). Returns out, lse."""
    scores = {j: score(j, sum(a * b for a, b in zip(q, k[j]))) for j in range(len(k)) if visible(j)}
    denominator = sum(map(math.exp, [*scores.values(), *sinks]))
    if denominator == 0:
        return [0.0] * len(v[0]), -math.inf
    out = [sum(math.exp(s) * v[j][c] for j, s in scores.items()) / denominator for c in range(len(v[0]))]
    return out, math.log(denominator)


def numbers(shape, seed):
    generator = random.Random(seed)
    return [generator.gauss(0, 1) for _ in range(math.prod(shape))]


class OwnTensors(program.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store = cls.make_store("pack", "flash_attention.plain.cpu_generic.f32.m8", "mean_pooling.strided.cpu_generic.f32.packed_chunks",
                                   "recurrent_update.blocks.cpu_generic.in_place.v8_b1")
        cls.environment = {"PATH": "/nonexistent", "EJKERNEL_STORE": str(cls.store), "EJKERNEL_CACHE_DIR": "/proc/nowhere"}

    def run_kernel(self, kernel, tensors, attributes, *more):
        """Values as stored in the input file, and outputs by name: (kind, shape, values)."""
        inputs, outputs = self.folder / f"{self.id()}-in.safetensors", self.folder / f"{self.id()}-out.safetensors"
        stored = write_safetensors(inputs, tensors)
        out = run([self.ejk, "run", kernel, "--inputs", inputs, "--outputs", outputs, "--attributes", json.dumps(attributes), "--arch", "generic", *more], self.environment)[0]
        self.assertIn("agrees with the float64 reference", out)
        return stored, read_safetensors(outputs)

    def close(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for i, (a, b) in enumerate(zip(found, expected)):
            self.assertTrue(a == b or abs(a - b) <= 1e-5 * max(1, abs(b)), f"element {i} is {a}, expected {b}")

    def test_attention_with_every_optional_tensor(self):
        B, Sq, Sk, Hq, Hkv, D, Dv, A = 2, 3, 5, 4, 2, 6, 3, 2
        generator = random.Random(11)
        mask = [generator.random() < 0.7 for _ in range(Hq * Sq * Sk)]
        tensors = {
            "q": ("F32", [B, Sq, Hq, D], numbers([B, Sq, Hq, D], 1)), "k": ("F32", [B, Sk, Hkv, D], numbers([B, Sk, Hkv, D], 2)),
            "v": ("F32", [B, Sk, Hkv, Dv], numbers([B, Sk, Hkv, Dv], 3)), "bias": ("F16", [B, 1, Sq, Sk], numbers([B, 1, Sq, Sk], 4)),
            "attention_mask": ("BOOL", [1, Hq, Sq, Sk], mask), "q_segment_ids": ("I32", [B, Sq], [0, 0, 1, 0, -1, 1]),
            "kv_segment_ids": ("I32", [B, Sk], [0, 0, 1, 1, -1, 0, 1, 1, -1, 1]), "softmax_aux": ("BF16", [Hq, A], numbers([Hq, A], 5))}
        attributes = {"causal": True, "causal_offset": 2, "softmax_scale": 0.3, "window_left": 3, "logits_soft_cap": 2.5}
        x, found = self.run_kernel("flash_attention", tensors, attributes, "--variant", "plain", "--want", "lse")
        out, lse = [0.0] * (B * Sq * Hq * Dv), [0.0] * (B * Hq * Sq)
        for b in range(B):
            for h in range(Hq):
                row = lambda name, token, tokens, heads, head, size: x[name][((b * tokens + token) * heads + head) * size:][:size]
                k = [row("k", j, Sk, Hkv, h // (Hq // Hkv), D) for j in range(Sk)]
                v = [row("v", j, Sk, Hkv, h // (Hq // Hkv), Dv) for j in range(Sk)]
                for i in range(Sq):
                    q_segment = x["q_segment_ids"][b * Sq + i]
                    visible = lambda j: (j <= i + 2 and j >= i + 2 - 3 and mask[(h * Sq + i) * Sk + j] and q_segment >= 0
                                         and q_segment == x["kv_segment_ids"][b * Sk + j])
                    score = lambda j, s: 2.5 * math.tanh(0.3 * s / 2.5) + x["bias"][(b * Sq + i) * Sk + j]
                    values, total = attention(row("q", i, Sq, Hq, h, D), k, v, visible, score, x["softmax_aux"][h * A:][:A])
                    at = ((b * Sq + i) * Hq + h) * Dv
                    out[at:at + Dv] = values
                    lse[(b * Hq + h) * Sq + i] = total
        self.assertEqual(found["out"][:2], ("F32", [B, Sq, Hq, Dv]))
        self.assertEqual(found["lse"][:2], ("F32", [B, Hq, Sq]))
        self.close(found["out"][2], out)
        self.close(found["lse"][2], lse)

    def test_packed_attention(self):
        Tq, Tk, Hq, Hkv, D, Dv = 6, 8, 2, 1, 4, 5
        bounds_q, bounds_k = [0, 3, 3, 5], [0, 2, 4, 7]  # the second sequence has no query; the last tokens belong to none
        tensors = {"q": ("F32", [Tq, Hq, D], numbers([Tq, Hq, D], 6)), "k": ("F32", [Tk, Hkv, D], numbers([Tk, Hkv, D], 7)),
                   "v": ("F32", [Tk, Hkv, Dv], numbers([Tk, Hkv, Dv], 8)), "softmax_aux": ("F32", [3], [0.5, -1.0, 0.25]),
                   "cum_seqlens_q": ("I32", [4], bounds_q), "cum_seqlens_k": ("I32", [4], bounds_k)}
        x, found = self.run_kernel("flash_attention", tensors, {"causal": True}, "--variant", "plain", "--want", "lse")
        out, lse = [0.0] * (Tq * Hq * Dv), [-math.inf] * (Hq * Tq)
        for n in range(3):
            k = [x["k"][t * D:][:D] for t in range(bounds_k[n], bounds_k[n + 1])]
            v = [x["v"][t * Dv:][:Dv] for t in range(bounds_k[n], bounds_k[n + 1])]
            length = bounds_q[n + 1] - bounds_q[n]
            for i in range(length):
                for h in range(Hq):
                    token = (bounds_q[n] + i) * Hq + h
                    visible = lambda j: j <= i + len(k) - length
                    values, total = attention(x["q"][token * D:][:D], k, v, visible, lambda j, s: s / math.sqrt(D), x["softmax_aux"])
                    out[token * Dv:(token + 1) * Dv] = values
                    lse[h * Tq + bounds_q[n] + i] = total
        self.close(found["out"][2], out)
        self.close(found["lse"][2], lse)

    def test_packed_chunks_of_pooling(self):
        bounds, C = [0, 3, 4, 8], 2
        x, found = self.run_kernel("mean_pooling", {"x": ("F32", [9, C], numbers([9, C], 9)), "cum_seqlens": ("I32", [4], bounds)}, {"chunk_size": 2}, "--variant", "strided")
        out = []
        for begin, end in zip(bounds, bounds[1:]):
            for first in range(begin, end, 2):
                tokens = range(first, min(first + 2, end))
                out += [sum(x["x"][t * C + c] for t in tokens) / len(tokens) for c in range(C)]
        self.assertEqual(found["out"][1], [5, C])
        self.close(found["out"][2], out)

    def test_a_state_is_updated_once(self):
        K, V = 4, 16
        tensors = {"q": ("F32", [1, 1, 1, K], numbers([K], 21)), "k": ("F32", [1, 1, 1, K], numbers([K], 22)), "v": ("F32", [1, 1, 1, V], numbers([V], 23)),
                   "state": ("F32", [1, 1, K, V], numbers([K, V], 24))}
        x, found = self.run_kernel("recurrent_update", tensors, {"softmax_scale": 1}, "--variant", "blocks", "--config", '{"vectors": 8, "block": 1}')
        state = [x["state"][i * V + j] + x["k"][i] * x["v"][j] for i in range(K) for j in range(V)]
        self.close(found["state"][2], state)
        self.close(found["out"][2], [sum(x["q"][i] * state[i * V + j] for i in range(K)) for j in range(V)])

    def test_bad_data_in_the_file_is_refused(self):
        inputs = self.folder / "bad.safetensors"
        write_safetensors(inputs, {"x": ("F32", [4, 1], [1.0] * 4), "cum_seqlens": ("I32", [3], [0, 3, 2])})
        out, err = run([self.ejk, "run", "mean_pooling", "--inputs", inputs, "--outputs", self.folder / "never"], self.environment, code=2)
        self.assertIn("cum_seqlens must not decrease", err)
        self.assertFalse((self.folder / "never").exists())


if __name__ == "__main__":
    program.main()
