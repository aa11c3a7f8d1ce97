"""Let the package index's torchvision import beside a CPU build of torch.

Why: torchvision's C extension is built for CUDA and does not load, so its Python parts fail with "operator
torchvision::nms does not exist". Declaring the operators' schemas, before torchvision is first imported, is enough:
language models never call them. Python imports this module by its name at start.
"""

import importlib.abc
import sys
from collections.abc import Sequence
from typing import Any

_BOXES = ("nms", "qnms")
_REGIONS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
SCHEMAS = tuple(
    [f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor" for name in _BOXES]
    + [f"{name}(Tensor x) -> Tensor" for name in (*_REGIONS, "qroi_align")]
    + [f"_{name}_backward(Tensor x) -> Tensor" for name in _REGIONS]
)


class _DeclareBeforeTorchvision(importlib.abc.MetaPathFinder):
    """Finds nothing; declares the operators when somebody looks for torchvision."""

    library: Any = None  # the declarations live as long as this object

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        if fullname == "torchvision" and self.library is None:
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for schema in SCHEMAS:
                self.library.define(schema)


sys.meta_path.insert(0, _DeclareBeforeTorchvision())
