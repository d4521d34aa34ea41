"""What happened to the parameters since the network last changed: were they trained, were they exchanged?"""

from __future__ import annotations

from torch import nn

from meristem.errors import SurgeryError
from meristem.surgery.model_tensors import ModelTensors
from meristem.surgery.module_tree import ModuleTree


class ParameterWatch:
    """Knows the parameters that the last change of the network left; :meth:`renew` it after each."""

    def __init__(self, model: nn.Module, tree: ModuleTree, tensors: ModelTensors) -> None:
        self._model, self._tree, self._tensors = model, tree, tensors
        self._precision_and_device = self._first_parameter()
        self.renew()

    def renew(self, trained: bool = False) -> None:
        """Watch the present parameters; ``trained`` says that they have been trained already."""
        tensors = {name: self._tensors.read(name) for name in self._tensors.resizable}
        self._parameters = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, nn.Parameter)}
        self._versions = {name: parameter._version for name, parameter in self._parameters.items()}
        self._trained_before = trained

    @property
    def trained(self) -> bool:
        """Whether any parameter was written to since the last change."""
        versions = self._versions.items()
        return self._trained_before or any(self._tensors.read(name)._version != version for name, version in versions)

    def check_untouched(self) -> None:
        """Refuse to go on with a model whose parameters somebody else has exchanged or converted."""
        for name, parameter in self._parameters.items():
            if self._tensors.read(name) is not parameter:
                raise SurgeryError(
                    f"{name} is not the parameter it was: the model was changed behind the grower's back; change it "
                    f"before the grower is made, or export() the network and go on with that"
                )
        absent = self._tree.absent
        if absent and (now := self._first_parameter()) != self._precision_and_device:
            raise SurgeryError(
                f"the model was converted from {self._precision_and_device} to {now} while it grows, which does not "
                f"reach blocks that are absent ({absent[0]}): convert it before the grower is made"
            )

    def _first_parameter(self) -> str:
        """Precision and device of the model's first parameter; a conversion changes those of all."""
        first = next(self._model.parameters())
        return f"{first.dtype} on {first.device}"
