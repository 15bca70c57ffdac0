"""The table of flash_attention's or flash_attention_bwd's page, from what one `ejk bench --save FILE.json` says of the cases gpu_d*, as they are or with --set E=f16: ours
beside each peer, the ratios, and the errors found by --check.

usage: attention_table.py FILE.json [PAGE.md]     prints the section; of PAGE.md it replaces the section of that element type, "## The table" or
"## In half-precision", up to the next heading"""

import json
import math
import re
import sys

TITLES = {"bf16": "## The table", "f16": "## In half-precision"}
PEERS = {"FLASH": "PyTorch's FLASH", "cuDNN": "its cuDNN", "ejkernel": "ejkernel's Triton"}
LENGTHS, DIMS = (512, 1024, 2048, 4096, 8192, 16384), (64, 128, 256)
CELLS = [(s, d, causal) for s in LENGTHS for d in DIMS for causal in (False, True)]
HEADING = "| S | " + " | ".join(f"D {d} {word}" for d in DIMS for word in ("full", "causal")) + " |\n|" + "---|" * 7

# TFLOP/s on another H200, by head dim, full / causal for each length: the best of FlashAttention-3, built from its source, and cuDNN; and cuDNN alone.
BEST = {"flash_attention": {64: "398/266 442/344 470/398 486/452 537/496 532/515", 128: "543/348 644/493 683/612 698/671 694/693 691/717",
                            256: "541/355 677/501 754/619 759/718 784/781 792/811"},
        "flash_attention_bwd": {64: "306/191 427/282 444/394 503/485 517/526 528/541", 128: "360/227 491/352 555/456 580/527 591/556 602/586",
                                256: "270/196 378/290 395/339 403/397 404/421 458/433"}}
CUDNN = {"flash_attention": {64: "392/266 442/342 470/398 482/433 491/458 496/470", 128: "543/348 617/441 656/518 673/575 682/607 671/628",
                             256: "541/355 640/464 699/545 728/600 740/629 749/655"},
         "flash_attention_bwd": {64: "279/167 369/248 429/326 459/386 472/425 440/453", 128: "341/213 449/317 524/414 568/485 591/535 532/586",
                                 256: "235/178 294/255 357/323 403/374 362/421 352/410"}}


def known(table, s, d, causal):
    return float(table[d].split()[LENGTHS.index(s)].split("/")[causal])


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

    def of_best(self, kernel):
        return self.against("cuDNN") * known(CUDNN[kernel], *self.place) / known(BEST[kernel], *self.place)


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


def section(report):
    kernel, element = report["kernel"], type_of(report)
    cells = {c: Cell(c, r) for r in report["results"] if (c := cell_of(r["case"]))}
    peers = [word for word in PEERS if any(word in cell.peers for cell in cells.values())]
    text = [f"{TITLES[element]} (TFLOP/s, {' / '.join(['ours'] + [PEERS[word] for word in peers])} in the same rounds; causal counts half)",
            f"16384 tokens, 2048 features of all heads, {element}, random data, nothing in L2, one run of {report['date']} on an {report['device'].split(',')[0]}: `{report['command']}` "
            f"({'; '.join(report.get('peers', []))}). {errors(cells)}", "", table(cells, lambda cell: cell.rates(peers)), ""]
    with_cudnn = {c: cell for c, cell in cells.items() if "cuDNN" in cell.peers}
    ratios = {c: cell.against("cuDNN") for c, cell in with_cudnn.items()}
    if ratios:
        by_dim = [(d, [r for (_, dim, _), r in ratios.items() if dim == d]) for d in DIMS]
        text += [f"**Against cuDNN**: {reached(ratios, 'it')}; " + ", ".join(f"heads of {d} {min(r):.2f} to {max(r):.2f}" for d, r in by_dim if r) + ".", "",
                 table(with_cudnn, lambda cell: f"{cell.against('cuDNN'):.2f}"), ""]
    for peer, words in (("FLASH", "PyTorch's FLASH backend (FlashAttention-2)"), ("ejkernel", "ejkernel's Triton kernel")):
        ratios = [cell.against(peer) for cell in cells.values() if peer in cell.peers]
        if ratios:
            text.append(f"**Against {words}**: {min(ratios):.2f} to {max(ratios):.2f}, geometric mean {mean(ratios):.2f}, {len(ratios)} cells.")
    if with_cudnn and element == "bf16":  # the other run's type
        best = {c: cell.of_best(kernel) for c, cell in with_cudnn.items()}
        text += ["", f"**Against the best peer of each cell**, FlashAttention-3 (not on this machine) or cuDNN, estimated from its ratio to cuDNN on another H200: "
                 f"{reached(best, 'it')}.", "", table(with_cudnn, lambda cell: f"{cell.of_best(kernel):.2f}")]
    variants = sorted({cell.variant for cell in cells.values()})
    text.append(f"\nEvery config is the heuristic's or a record's, as a call gets it: {', '.join(variants)}.")
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
