#!/usr/bin/env python3
"""Draws attention_h200_causal.svg and attention_h200_full.svg beside this file, from the tables "## The table" of flash_attention_sm90.md and
flash_attention_bwd_sm90.md: TFLOP/s by sequence length, a panel a head dim and pass.

usage: attention_plot.py [--check]      --check: writes nothing, fails if the files are not what the tables give

A peer is drawn where the tables have a column of it."""

import math
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from attention_table import DIMS, LENGTHS, mean  # noqa: E402

PASSES = {"flash_attention": ("forward", "flash_attention_sm90.md"), "flash_attention_bwd": ("backward", "flash_attention_bwd_sm90.md")}
# Words of a table's title: (name in the plot, colour).
SERIES = {"ours": ("ejk", "#c2410c"), "its cuDNN": ("cuDNN 9.19", "#15803d"), "FlashAttention-3": ("FlashAttention-3", "#1d4ed8"),
          "PyTorch's FLASH": ("FlashAttention-2", "#7c7c7c")}
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 190, 60, 66, 46


def rates(page):
    """{(words of a column's title, S, D, causal): TFLOP/s} of the page's main table."""
    text = (HERE / page).read_text()
    title, rest = re.search(r"^## The table \(TFLOP/s, (.*?) in the same rounds.*?\)$(.*?)^## ", text, re.M | re.S).groups()
    names, found = title.split(" / "), {}
    table = re.search(r"\| S \|.*?\n\n", rest, re.S)[0].splitlines()
    for line in table[2:]:
        if not line.startswith("|"):
            continue
        length, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        for place, cell in enumerate(cells):
            for name, rate in zip(names, cell.split(" / "), strict=True):
                if rate != "-":
                    found[name, int(length), DIMS[place // 2], bool(place % 2)] = float(rate)
    return found


def against_cudnn(kernel):
    """Geometric mean over the table's cells of what ours is in cuDNN's."""
    found = rates(PASSES[kernel][1])
    return mean([rate / found["its cuDNN", *cell] for (name, *cell), rate in found.items() if name == "ours" and ("its cuDNN", *cell) in found])


def lines(kernel, dim, causal):
    """[(name, colour, [(S, TFLOP/s)])]"""
    found = rates(PASSES[kernel][1])
    series = [(*told, [(s, found[words, s, dim, causal]) for s in LENGTHS if (words, s, dim, causal) in found]) for words, told in SERIES.items()]
    return [line for line in series if line[-1]]


def text(x, y, words, size=11, anchor="middle", colour="#222", weight="normal"):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">{words}</text>'


def panel(x, y, title, series):
    top = math.ceil(max(rate for *_, points in series for _, rate in points) / 200) * 200
    across = lambda s: x + WIDTH * math.log2(s / LENGTHS[0]) / math.log2(LENGTHS[-1] / LENGTHS[0])  # noqa: E731
    up = lambda rate: y + HEIGHT * (1 - rate / top)  # noqa: E731
    parts = [text(x + WIDTH / 2, y - 8, title, 12, weight="bold")]
    for rate in range(0, top + 1, 200):
        parts.append(f'<path d="M{x} {up(rate):.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(text(x - 6, up(rate) + 4, rate, 10, "end", "#555"))
    parts += [text(across(s), y + HEIGHT + 15, s if s < 1024 else f"{s // 1024}k", 10, colour="#555") for s in LENGTHS]
    for _, colour, points in reversed(series):  # ours last, on top
        path = "L".join(f"{across(s):.1f} {up(rate):.1f}" for s, rate in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(s):.1f}" cy="{up(rate):.1f}" r="2.5" fill="{colour}"/>' for s, rate in points]
    return parts


def legend(series, y):
    parts, x = [], LEFT
    for name, colour, _ in series:
        parts.append(f'<path d="M{x} {y}h26" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(x + 32, y + 4, name, 12, "start"))
        x += 60 + 7 * len(name)
    return parts


def drawing(causal):
    wide, high = LEFT + 3 * (WIDTH + GAP), TOP + 2 * (HEIGHT + 62)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif">',
             f'<rect width="{wide}" height="{high}" fill="white"/>',
             text(LEFT, 20, f"flash_attention on an H200, bf16, {'causal' if causal else 'full'}, 16384 tokens in all, 2048 features: TFLOP/s by sequence length", 14, "start", weight="bold")]
    for row, (kernel, (word, _)) in enumerate(PASSES.items()):
        for column, dim in enumerate(DIMS):
            series = lines(kernel, dim, causal)
            parts += panel(LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + 62) + 16, f"{word}, heads of {dim}", series)
    return "\n".join([*parts, *legend(series, 42), "</svg>"]) + "\n"


def main():
    wrong = []
    for causal in (True, False):
        path, made = HERE / f"attention_h200_{'causal' if causal else 'full'}.svg", drawing(causal)
        if path.exists() and path.read_text() == made:
            continue
        wrong.append(f"{path}: not what the tables give: run docs/bench/attention_plot.py")
        if sys.argv[1:] != ["--check"]:
            path.write_text(made)
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
