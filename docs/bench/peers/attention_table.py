"""The table of flash_attention's or flash_attention_bwd's page, from what one `ejk bench --save FILE.json` says of the cases gpu_d*, as they are or with --set E=f16: ours
beside each peer, the ratios, and the errors found by --check.

usage: attention_table.py FILE.json [PAGE.md]     prints the section; of PAGE.md it replaces the section of that element type, "## The table" or
"## In half-precision", up to the next heading"""

import json
import math
import re
import sys

TITLES = {"bf16": "## The table", "f16": "## In half-precision"}
PEERS = {"FLASH": "PyTorch's FLASH", "cuDNN": "its cuDNN", "FlashAttention-3": "FlashAttention-3", "ejkernel": "ejkernel's Triton"}
BEST = ("cuDNN", "FlashAttention-3")  # the peers of "the best peer of each cell"
LENGTHS, DIMS = (512, 1024, 2048, 4096, 8192, 16384), (64, 128, 256)
CELLS = [(s, d, causal) for s in LENGTHS for d in DIMS for causal in (False, True)]
HEADING = "| S | " + " | ".join(f"D {d} {word}" for d in DIMS for word in ("full", "causal")) + " |\n|" + "---|" * 7


def cell_of(case):
    found = re.fullmatch(r"gpu_d(\d+)_s(\d+)(\.b?f16)?(\.causal)?", case)
    return found and (int(found[2]), int(found[1]), bool(found[4]))


def type_of(report):
    """Of all cells: a table has one element type."""
    types = {"f16" if ".f16" in r["case"] else "bf16" for r in report["results"] if cell_of(r["case"])}
    if len(types) > 1:
        sys.exit("cases of bf16 and of f16 in one file: a table has one type")
    return types.pop() if types else "bf16"


def name(cell):
    s, d, causal = cell
    return f"D {d} {'causal' if causal else 'full'} {s}"


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def table(cells, text):
    rows = [HEADING]
    for s in LENGTHS:
        row = [text(cells[s, d, causal]) if (s, d, causal) in cells else "-" for d in DIMS for causal in (False, True)]
        if any(word != "-" for word in row):
            rows.append(f"| {s} | " + " | ".join(row) + " |")
    return "\n".join(rows)


class Cell:
    def __init__(self, place, result):
        self.place, self.time, self.flops = place, result["median_seconds"], result["flops"]
        self.peers = {}
        for peer in result.get("peers", []):
            for word in PEERS:
                if word in peer["name"] and "median_seconds" in peer:
                    self.peers[word] = peer["median_seconds"]
        self.check, self.variant = result.get("check"), result["config"]["variant"]

    def rates(self, peers):
        return " / ".join("-" if not t else f"{self.flops / t / 1e12:.0f}" for t in [self.time] + [self.peers.get(w) for w in peers])

    def against(self, peer):
        return self.peers[peer] / self.time

    def against_best(self):
        return min(self.against(peer) for peer in BEST)


def reached(ratios, what):
    """How many of {cell: ratio} are 1 or more as printed, and which are not."""
    below = {cell: r for cell, r in ratios.items() if round(r, 2) < 1}
    text = f"{len(ratios) - len(below)} of {len(ratios)} cells reach {what}"
    if below:
        text += "; below: " + ", ".join(f"{name(cell)} ({r:.2f})" for cell, r in sorted(below.items(), key=lambda item: item[1]))
    return text + f"; geometric mean {mean(ratios.values()):.3f}"


def errors(cells):
    checked = [c for c in cells.values() if c.check and c.check["outputs"]]
    if not checked:
        return "Results were not compared."
    outputs = checked[0].check["outputs"]
    text = "; ".join(f"{o} off by {min(c.check['outputs'][o]['error'] for c in checked):.2g} to {max(c.check['outputs'][o]['error'] for c in checked):.2g} "
                     f"(tolerance {outputs[o]['tolerance']:g})" for o in outputs)
    wrong = [name(c.place) for c in checked if c.check["failed"]]
    return (f"In the same run, what the timed launches left was compared with float64 in {len(checked)} of {len(cells)} cells, by sampled rows, relative: {text}; "
            + ("WRONG: " + ", ".join(wrong) if wrong else "none failed") + ".")


def against(what, ratios):
    """Lines of a peer's part: how many cells reach it, by head dim, and each cell's ratio; none if it was not measured."""
    if not ratios:
        return []
    by_dim = [(d, [r for (_, dim, _), r in ratios.items() if dim == d]) for d in DIMS]
    return [f"{what}: {reached(ratios, 'it')}; " + ", ".join(f"heads of {d} {min(r):.2f} to {max(r):.2f}" for d, r in by_dim if r) + ".", "",
            table(ratios, lambda ratio: f"{ratio:.2f}"), ""]


def section(report):
    element = type_of(report)
    cells = {c: Cell(c, r) for r in report["results"] if (c := cell_of(r["case"]))}
    peers = [word for word in PEERS if any(word in cell.peers for cell in cells.values())]
    text = [f"{TITLES[element]} (TFLOP/s, {' / '.join(['ours'] + [PEERS[word] for word in peers])} in the same rounds; causal counts half)",
            f"16384 tokens, 2048 features of all heads, {element}, random data, nothing in L2, one run of {report['date']} on an {report['device'].split(',')[0]}: `{report['command']}` "
            f"({'; '.join(report.get('peers', []))}). {errors(cells)}", "", table(cells, lambda cell: cell.rates(peers)), ""]
    for peer, words in (("cuDNN", "cuDNN"), ("FlashAttention-3", "FlashAttention-3")):
        text += against(f"**Against {words}**", {c: cell.against(peer) for c, cell in cells.items() if peer in cell.peers})
    for peer, words in (("FLASH", "PyTorch's FLASH backend (FlashAttention-2)"), ("ejkernel", "ejkernel's Triton kernel")):
        ratios = [cell.against(peer) for cell in cells.values() if peer in cell.peers]
        if ratios:
            text.append(f"**Against {words}**: {min(ratios):.2f} to {max(ratios):.2f}, geometric mean {mean(ratios):.2f}, {len(ratios)} cells.")
    text.append("")
    text += against("**Against the best peer of each cell**, FlashAttention-3 or cuDNN, in the same rounds",
                    {c: cell.against_best() for c, cell in cells.items() if all(peer in cell.peers for peer in BEST)})
    variants = sorted({cell.variant for cell in cells.values()})
    text.append(f"Every config is the heuristic's or a record's, as a call gets it: {', '.join(variants)}.")
    return "\n".join(text) + "\n\n"


def main():
    with open(sys.argv[1]) as file:
        report = json.load(file)
    new = section(report)
    if len(sys.argv) < 3:
        return print(new, end="")
    with open(sys.argv[2]) as file:
        page = file.read()
    begin = page.index(TITLES[type_of(report)])
    end = page.index("\n## ", begin) + 1
    with open(sys.argv[2], "w") as file:
        file.write(page[:begin] + new + page[end:])


if __name__ == "__main__":
    main()
