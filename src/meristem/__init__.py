"""meristem grows neural networks while they train."""

from meristem import methods
from meristem.control.budget import Budget
from meristem.control.method import Method
from meristem.cost.count import count_macs, count_params
from meristem.errors import MeristemError
from meristem.gating.unit_gates import Gates
from meristem.grower import Grower
from meristem.io.export import export, load, save
from meristem.space.plan import Plan
from meristem.space.space import Space
from meristem.surgery.live import Live
from meristem.tracing.trace import trace

__all__ = [
    "Budget",
    "Gates",
    "Grower",
    "Live",
    "MeristemError",
    "Method",
    "Plan",
    "Space",
    "count_macs",
    "count_params",
    "export",
    "load",
    "methods",
    "save",
    "trace",
]
__version__ = "0.1.0"
