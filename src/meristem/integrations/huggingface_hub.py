"""Networks that have grown on the Hugging Face Hub, through its own mixin: two files, and the model's class stays.

GrownNetwork(grower).push_to_hub("me/small-resnet")
small = GrownNetwork.from_pretrained("me/small-resnet", model=resnet20())  # a plain module of the model's own class
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from meristem.errors import MeristemError
from meristem.grower import Grower
from meristem.io.export import ARCHITECTURE, WEIGHTS, load, save
from meristem.surgery.live import Live

try:
    from huggingface_hub import ModelHubMixin, snapshot_download
except ImportError as error:
    raise ImportError(
        "meristem.integrations.huggingface_hub needs huggingface_hub, which is not installed: "
        "pip install 'meristem[huggingface_hub]'"
    ) from error


class GrownNetwork(ModelHubMixin, library_name="meristem", tags=["meristem"]):
    """The network of a grower, or of a live model, as the Hub takes it.

    ``save_pretrained`` writes what ``grower.save`` writes, and a model card; ``push_to_hub`` uploads that.
    ``from_pretrained``, of a repository or of such a folder, is given the full-size ``model``, built as it was grown
    from, and returns it with the weights and the sizes of the network: what is downloaded is data, no code is run.
    """

    def __init__(self, network: Grower | Live) -> None:
        self._network = network

    def _save_pretrained(self, save_directory: Path) -> None:
        if isinstance(self._network, Grower):
            self._network.save(save_directory)
        else:
            save(self._network, save_directory)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, source: str | Path, model: nn.Module | None = None, **where: Any
    ) -> nn.Module:
        """The network in a folder, or in a repository of the Hub; ``where`` is for ``snapshot_download``.

        The mixin's own would look for a config, and leave it in the plain module that is returned.
        """
        if model is None:
            raise MeristemError(
                "the files hold sizes and weights, not code: give the full-size model that they were grown from, "
                "GrownNetwork.from_pretrained(..., model=...)"
            )
        if not Path(source).is_dir():
            source = snapshot_download(str(source), allow_patterns=[WEIGHTS, ARCHITECTURE], **where)
        return load(source, model)
