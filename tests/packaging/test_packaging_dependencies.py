"""Declared dependencies and imported packages are the same set, and every pin is one the project admits."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("basis_daemon", "shared/basis_protocol", "clients/basis_client", "clients/basisctl", "clients/basis_acp")
OWN = {folder.rpartition("/")[2] for folder in SHIPPED}
STANDARD = sys.stdlib_module_names | {"compression"}
"""The standard library's modules, those of newer Pythons included."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def declared() -> dict[str, Requirement]:
    project = PROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): number for name, _, number in pins}


def imported() -> set[str]:
    """Top-level names of everything that shipped code imports, wherever in a file it does so."""
    found: set[str] = set()
    for folder in SHIPPED:
        for path in (ROOT / folder).rglob("*.py"):
            found.update(_imports(ast.parse(path.read_text("utf-8"))))
    return found - STANDARD - OWN


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module.partition(".")[0]
            case _:
                pass


def test_everything_imported_is_declared_and_everything_declared_is_imported() -> None:
    """A package that only happens to be installed would be missing on the next machine."""
    owners = packages_distributions()
    used = {canonicalize_name(owners[name][0] if name in owners else name) for name in imported()}

    assert used == set(declared())


def test_every_dependency_has_a_lower_bound_that_the_pinned_version_meets() -> None:
    pins = pinned()
    for name, requirement in declared().items():
        assert requirement.specifier, f"{name} has no lower bound"
        assert pins[name] in requirement.specifier


def test_the_tests_run_with_the_pinned_versions() -> None:
    for name, number in pinned().items():
        if name in declared():
            try:
                assert version(name) == number
            except ModuleNotFoundError:
                pytest.fail(f"{name} is pinned and declared, yet not installed")


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    """No index address, no option, no path, no hash: the list works with whatever index pip is set up for."""
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line
