"""Measures how fast the networks of a study are, once all of its runs have ended."""

from __future__ import annotations

from meristem.errors import MeristemError
from meristem.io.export import load
from meristem_bench.runs.latency import measured_latencies, read_latency, write_latency
from meristem_bench.runs.result import finished_result
from meristem_bench.runs.training import build_model, load_data
from meristem_bench.studies.study import Study


def measure_latencies(study: Study) -> list[str]:
    """Measure the finished networks that were not measured yet; returns what kept it from being done, if anything."""
    waiting = [
        case
        for case in study.cases()
        if finished_result(study.folder(case)) is not None and read_latency(study.folder(case)) is None
    ]
    if not waiting:
        return []
    try:
        data = load_data(study.run)
        models = [load(study.folder(case).model, build_model(study.run_of(case), data)) for case in waiting]
        for case, latency in zip(waiting, measured_latencies(study.run, data, models), strict=True):
            write_latency(study.folder(case), latency)
    except MeristemError as error:
        return [f"latency was not measured: {error}"]
    except Exception as error:  # the user's own code may fail in any way, and the table is still to be shown
        return [f"latency was not measured: {type(error).__name__}: {error}"]
    return []
