"""MLflow: the graphs of a run as metrics of a run of theirs, which goes on when ours does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from meristem.errors import MeristemError
from meristem_bench.runs.folder import Folder, read_json, write_json
from meristem_bench.runs.run import Run

_NOT_IN_NAMES = re.compile(r"[^\w./ -]")
_LATEST = "spend/frac"  # a metric that every epoch has
_PARAMS, _METRICS = 100, 1000  # as many as MLflow takes at a time
Item = TypeVar("Item")


class MlflowWriter:
    """Where it goes is for MLflow's own settings to say: ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``."""

    needs = "mlflow"

    def __init__(self) -> None:
        self._client: Any = None
        self._run = ""

    @staticmethod
    def mark(folder: Folder) -> Path:
        """The file that says which of their runs it is."""
        return folder.path / "mlflow.json"

    def begin(self, run: Run, folder: Folder) -> int:
        import mlflow

        mark = self.mark(folder)
        known = str(read_json(mark)["run"]) if mark.exists() else None
        with _told():
            self._run = mlflow.start_run(run_id=known, run_name=str(folder.path)).info.run_id
            self._client = mlflow.MlflowClient()
            if known is not None:
                return max((each.step for each in self._client.get_metric_history(known, _LATEST)), default=0)
            settings = {"recipe": run.name, **run.settings}
            params = [mlflow.entities.Param(name, str(value)) for name, value in settings.items()]
            for some in _in_parts(params, _PARAMS):
                self._client.log_batch(self._run, params=some)
        write_json(mark, {"run": self._run})
        return 0

    def write(self, points: Mapping[str, float], epoch: int, moment: float) -> None:
        from mlflow.entities import Metric

        named = {_NOT_IN_NAMES.sub("_", tag): value for tag, value in points.items()}
        metrics = [Metric(name, value, round(1000 * moment), epoch) for name, value in named.items()]
        metrics.sort(key=lambda metric: metric.key == _LATEST)  # last: an epoch that has it has all
        with _told():
            for some in _in_parts(metrics, _METRICS):
                self._client.log_batch(self._run, metrics=some)

    def close(self, finished: bool) -> None:
        if self._client is not None:
            import mlflow

            with _told():
                mlflow.end_run("FINISHED" if finished else "KILLED")


@contextmanager
def _told() -> Iterator[None]:
    """MLflow's errors as one sentence."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        reason = str(error).strip().partition("\n")[0]
        raise MeristemError(f"--mlflow: MLflow cannot take the run ({reason}); see MLFLOW_TRACKING_URI") from None


def _in_parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
