# SPDX-License-Identifier: Apache-2.0
"""Every example in a docstring of the package runs and prints what it says, and every public function has one."""

import doctest
import importlib
import importlib.util
import inspect
import pathlib
import pkgutil

import numpy
import pytest

import ebb

# What a module needs beside NumPy, by the first words of its name.
NEEDS = {"ebb.schedules": "checkpoint_schedules"}
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
    found = doctest.testmod(module, extraglobs={"ebb": ebb, "np": numpy}, optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


def test_the_page_about_python():
    pytest.importorskip("checkpoint_schedules", reason="the package checkpoint_schedules is not installed")
    page = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    found = doctest.testfile(str(page), module_relative=False, optionflags=flags)
    assert found.attempted > 10 and found.failed == 0


def public_functions():
    return [name for name in ebb.__all__ if inspect.isfunction(getattr(ebb, name))]


@pytest.mark.parametrize("name", public_functions())
def test_public_functions_have_an_example(name):
    assert ">>>" in (getattr(ebb, name).__doc__ or "")


@pytest.mark.parametrize("name", ebb.__all__)
def test_public_names_are_documented(name):
    assert (getattr(ebb, name).__doc__ or "").strip()
