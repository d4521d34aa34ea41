"""meristem grows neural networks while they train."""

from meristem.trace.trace import trace

__version__ = "0.1.0"
