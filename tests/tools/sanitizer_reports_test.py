"""tools/sanitizer_reports on logs as compute-sanitizer writes them: known reports pass; others, and logs that are not whole, do not."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1])
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at load_bytes(unsigned int, const void *, unsigned int, unsigned int)+0xd0c0 in source.cu:1156
=========     and Read access at load_two(unsigned int)+0x4d30 in source.cu:2981 [576 hazards]
=========     and Read access at {other} [576 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
READ = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 2 bytes
=========     at void copy_rows<(int)256, bfloat16>(const View &, const View &)+0xeb0 in source.cu:1893
=========     by thread (0,0,0) in block (8,0,0)
=========         Device Frame: {entry}+0x200 in source.cu:4330
=========     Saved host backtrace up to driver entry point at kernel launch time
=========
========= ERROR SUMMARY: 1 error
"""


def run(text):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        log.write_text(text)
        done = subprocess.run([ROOT / "tools/sanitizer_reports", log], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(text, status, words):
    found = run(text)
    assert found[0] == status and words in found[1], found


expect(RACE.format(other="differentiate+0x35f0"), 0, "2 reports, 2 different, 0 not")
expect(RACE.format(other="KeptWeights<(int)96>::read(unsigned int)+0x8e80 in source.cu:2573"), 1,
       "not known: race | read KeptWeights::read | write load_bytes (1 times)")
expect(RACE.format(other="differentiate+0x35f0").replace("RACECHECK SUMMARY", ""), 1, "have no summary")
expect(READ.format(entry="store_bias"), 0, "1 reports, 1 different, 0 not")
expect(READ.format(entry="attend"), 1, "not known: init | copy_rows | attend (1 times)")
expect(READ.format(entry="store_bias") + "========= 7 errors were not printed.\n", 1, "larger --print-limit")
print("6 passed, 0 failed")
