"""Runs on the installed package, not on the sources."""

import os

import pytest

import ejk

if not os.path.exists(os.path.join(os.path.dirname(ejk.__file__), "lib", "libejk.so")):
    pytest.exit(f"{ejk.__file__} has no library: install a wheel, or make a tree (tools/wheel --tree FOLDER)", returncode=2)
