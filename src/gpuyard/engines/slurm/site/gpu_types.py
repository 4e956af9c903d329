"""Maps the site's names of GPUs to the yard's models."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.engines.slurm.site.names import mend_name
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.words.forms import guess_models
from gpuyard.errors import quote
from gpuyard.model import CATALOGUE
from gpuyard.model.gpu_names import UNTYPED, choose_model


@dataclass(slots=True)
class GpuTypes:
    """Types to models: as an option says, else as the names suggest, else under their own names."""

    told: Mapping[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    """The types asked for so far, with their models."""

    def model(self, gpu_type: str, notes: Notes) -> str:
        """The one model that GPUs of a type are."""
        if gpu_type in self.chosen:
            return self.chosen[gpu_type]
        models = tuple(map(mend_name, guess_models(gpu_type or UNTYPED)))
        model = mend_name(choose_model(gpu_type, self.told))
        if gpu_type not in self.told and (gpu_type or UNTYPED) not in self.told:
            if len(models) > 1:
                notes.guess(
                    f"type {quote(gpu_type)} may be {' or '.join(models)}; taken for {model}, "
                    f"else say --gpu-type {gpu_type}={models[0]}"
                )
            elif model not in CATALOGUE:
                name = quote(gpu_type) if gpu_type else "GPUs without a type"
                notes.guess(
                    f"{name}: no model of the catalogue; it stands under gpu_models with 16 GiB and 1 USD an "
                    f"hour, which you should set, or say --gpu-type {gpu_type or UNTYPED}=MODEL"
                )
        self.chosen[gpu_type] = model
        return model

    @property
    def strange(self) -> list[str]:
        """Models in use that the catalogue lacks."""
        return sorted({model for model in self.chosen.values() if model not in CATALOGUE})
