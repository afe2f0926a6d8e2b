"""Files of weights alone, under the names that PyTorch gives them."""

import json
from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from safetensors.numpy import save

from mlpengine.core.spec import Array, Spec
from mlpengine.export._exported import Exported
from mlpengine.models.model import Model
from mlpengine.nn import Network

DESCRIPTION_KEY = "description"
"""Name of the text in an .npz that describes the network; no parameter is called so."""


def to_safetensors(model: Model | Network) -> tuple[bytes, Exported]:
    """Return a file that ``safetensors.torch.load_file`` reads into an ``nn.Sequential``."""
    arrays = model.state_dict()  # copies: safetensors stores C-contiguous arrays rightly
    return save(arrays, {"format": "pt"}), _exported("safetensors", arrays)


def to_npz(model: Model | Network) -> tuple[bytes, Exported]:
    """Return a file that ``numpy.load`` reads, with the network's architecture as JSON text.

    Equal models give equal bytes: members carry no time.
    """
    mlp = model.mlp if isinstance(model, Model) else model
    arrays = model.state_dict()
    description = np.array(json.dumps(mlp.describe(), sort_keys=True))
    target = BytesIO()
    with ZipFile(target, "w", ZIP_STORED) as archive:
        for name, array in {**arrays, DESCRIPTION_KEY: description}.items():
            member = BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(ZipInfo(f"{name}.npy"), member.getvalue())
    return target.getvalue(), _exported("npz", arrays)


def _exported(format: str, arrays: Mapping[str, Array]) -> Exported:
    specs = {name: f"{Spec(array.shape, array.dtype)}" for name, array in arrays.items()}
    return Exported(format, {}, specs)
