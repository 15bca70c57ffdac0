"""`python -m ejk`, and the command `ejk` that the wheel installs: the ejk program."""

import os
import sys

from ._library import PROGRAM


def main():
    try:
        os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"ejk: {PROGRAM}: {error.strerror}; install the wheel again")


if __name__ == "__main__":
    main()
