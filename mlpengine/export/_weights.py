"""Files of weights alone, under the names that PyTorch gives them."""

from safetensors.numpy import save

from mlpengine.core.spec import Spec
from mlpengine.export._exported import Exported
from mlpengine.models.model import Model
from mlpengine.nn import Network


def to_safetensors(model: Model | Network) -> tuple[bytes, Exported]:
    """Return a file that ``safetensors.torch.load_file`` reads into an ``nn.Sequential``."""
    arrays = model.state_dict()  # copies, because safetensors needs C-contiguous arrays
    specs = {name: f"{Spec(array.shape, array.dtype)}" for name, array in arrays.items()}
    return save(arrays, {"format": "pt"}), Exported("safetensors", {}, specs)
