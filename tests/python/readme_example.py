"""Prints the first Python example of the README, to be run as it stands."""

import re
import sys

with open(sys.argv[1]) as file:
    found = re.search(r"^## In Python\n.*?^```python\n(.*?)^```", file.read(), re.S | re.M)
if not found:
    sys.exit(f"{sys.argv[1]}: no ```python block below '## In Python'")
print(found[1])
