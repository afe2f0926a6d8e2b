"""Files of weights alone, under the names that PyTorch gives them."""

import json
from io import BytesIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from safetensors.numpy import save

from mlpengine.export._report import Exported
from mlpengine.nn import Mlp
from mlpengine.train.model import Model

DESCRIPTION = "description"
"""Name of the text in an .npz that describes the network; no parameter is called so."""


def to_safetensors(model: Model | Mlp) -> tuple[bytes, Exported]:
    """Return a file that ``safetensors.torch.load_file`` reads into an ``nn.Sequential``."""
    mlp = model.mlp if isinstance(model, Model) else model
    # state_dict copies: C-contiguous arrays, which safetensors stores rightly
    return save(mlp.state_dict(), {"format": "pt"}), _exported("safetensors", mlp)


def to_npz(model: Model | Mlp) -> tuple[bytes, Exported]:
    """Return a file that ``numpy.load`` reads, with the network's architecture as JSON text.

    Equal models give equal bytes: members carry no time.
    """
    mlp = model.mlp if isinstance(model, Model) else model
    description = np.array(json.dumps(mlp.to_dict(), sort_keys=True))
    target = BytesIO()
    with ZipFile(target, "w", ZIP_STORED) as archive:
        for name, array in {**mlp.state_dict(), DESCRIPTION: description}.items():
            member = BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(ZipInfo(f"{name}.npy"), member.getvalue())
    return target.getvalue(), _exported("npz", mlp)


def _exported(format: str, mlp: Mlp) -> Exported:
    arrays = {name: f"{spec}" for name, spec in mlp.params.specs.items()}
    return Exported(format, {}, arrays)
