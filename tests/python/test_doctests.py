# SPDX-License-Identifier: Apache-2.0
"""Every example in a docstring of the package runs and prints what it says, and every public function has one."""

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import pathlib
import pkgutil

import numpy
import pytest

import ebb

# What a module needs that is neither NumPy nor torch.
NEEDS = {
    **dict.fromkeys((f"ebb._compress.arithmetic.triton_{part}" for part in ("kernels", "launch", "places")), "triton"),
}
MODULES = sorted(found.name for found in pkgutil.walk_packages(ebb.__path__, "ebb.") if found.name != "ebb._core")


def imported(name):
    try:
        return importlib.import_module(name)
    except (ImportError, ebb.Error) as error:
        needed = NEEDS.get(name, "torch")
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
        raise error


@pytest.mark.parametrize("name", ["ebb", *MODULES])
def test_examples(name):
    module = imported(name)
    for lazy in ebb.__all__ if name == "ebb" else ():  # classes are found where their users find them
        with contextlib.suppress(ImportError, ebb.Error):
            getattr(ebb, lazy)
    found = doctest.testmod(module, extraglobs={"ebb": ebb, "np": numpy}, optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


PAGES = {
    page.name: page
    for page in (pathlib.Path(__file__).parents[2] / "docs").glob("*.md")
    if "```pycon" in page.read_text()
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages(name):
    page = PAGES[name]
    if "import torch" in page.read_text():
        pytest.importorskip("torch", reason="the package torch is not installed")
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    found = doctest.testfile(str(page), module_relative=False, optionflags=flags)
    assert found.attempted > 3 and found.failed == 0


def test_finds_the_pages_with_examples():
    assert {"pytorch.md", "compress.md", "python.md", "choosing.md"} <= set(PAGES)


@pytest.mark.parametrize("name", [name for name in ebb.__all__ if name not in ("last_report", "strategies")])
def test_public_names_are_documented(name):
    value = public(name)
    assert (value.__doc__ or "").strip()
    assert not inspect.isfunction(value) or ">>>" in value.__doc__


def public(name):
    try:
        return getattr(ebb, name)
    except ebb.Error as error:
        pytest.skip(str(error))
