"""Conformance checks that anyone can run: on their own model, and on their own method of growing or pruning."""

from meristem.testing.masked_reference import Reference, masked_reference
from meristem.testing.method_checks import check_method

__all__ = ["Reference", "check_method", "masked_reference"]
