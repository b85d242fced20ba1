"""What every error says about what may be done next (RT-37), and that its text is its own (RT-38)."""

import importlib
import pkgutil

import pytest

import basis_daemon
from basis_daemon.errors import BasisError, LeaseUnavailable, ProviderSetupError, StoreError
from basis_daemon.runtime.providers.errors import HttpError, ProviderError, StreamCut, TransportError
from basis_daemon.runtime.providers.selection import FailedToListModels

TRANSIENT = {"provider_transport", "provider_retryable", "provider_stream_cut"}
"""Kinds that are always worth another try; an HTTP error is by its status."""


def kinds_below(kind: type[BasisError]) -> list[type[BasisError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in kinds_below(child))]


def all_kinds() -> list[type[BasisError]]:
    for module in pkgutil.walk_packages(basis_daemon.__path__, "basis_daemon."):
        if not module.name.endswith("__main__") and "pocket_child" not in module.name:
            importlib.import_module(module.name)
    return [kind for kind in kinds_below(BasisError) if kind.__module__.startswith("basis_daemon")]


def bare(kind: type[BasisError]) -> BasisError:
    """An instance, whatever its constructor wants."""
    error = kind.__new__(kind)
    if isinstance(error, ProviderError):
        ProviderError.__init__(error, "x")
    return error


def test_every_error_of_the_tree_has_the_category_its_place_says() -> None:
    """RT-37: provider failures by whether they pass, stores are degraded, everything else is final."""
    kinds = all_kinds()
    assert len(kinds) > 50
    for kind in kinds:
        expected = "degraded" if issubclass(kind, StoreError) else "retryable" if kind.kind in TRANSIENT else "terminal"
        assert bare(kind).category == expected, kind


@pytest.mark.parametrize(
    ("status", "category"), [(400, "terminal"), (408, "retryable"), (429, "retryable"), (503, "retryable")]
)
def test_http_errors_are_worth_another_try_by_their_status(status: int, category: str) -> None:
    """RT-37, PV-49."""
    assert HttpError("x", status=status).category == category


def test_listing_and_leases_are_not_tried_again_by_themselves() -> None:
    """RT-37: model listing is terminal, a lease held elsewhere degraded."""
    assert FailedToListModels("x").category == "terminal" and issubclass(FailedToListModels, ProviderSetupError)
    assert LeaseUnavailable("x").category == "degraded"
    assert TransportError("x").category == StreamCut("x").category == "retryable"
