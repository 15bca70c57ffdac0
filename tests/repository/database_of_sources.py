#!/usr/bin/env python3
"""database_of_sources.py BUILD: BUILD's compile_commands.json on stdout with an entry for each source, where a unity build has one for the
file that includes a folder's sources (EJK_UNITY)."""
import json
import pathlib
import re
import sys

entries = []
for entry in json.loads(pathlib.Path(sys.argv[1], "compile_commands.json").read_text()):
    unit = entry["file"]
    sources = [unit]
    if re.search(r"/Unity/unity_\w+_cxx\.cxx$", unit):
        sources = re.findall(r'^#include "(.*)"$', pathlib.Path(unit).read_text(), re.MULTILINE)
        if not sources:
            sys.exit(f"database_of_sources: {unit} includes no source")
    for source in sources:
        entries.append({**entry, "file": source, "command": entry["command"].replace(unit, source)})
json.dump(entries, sys.stdout, indent=1)
