"""What SGLang needs on a CPU: flags, environment, and the folder of import shims.

Everything here holds for the pinned version only, because the shims touch private names.
"""

from pathlib import Path
from typing import Any

SGLANG_VERSION = "0.5.23"
"""The version whose private names the shims know."""

SHIM_FOLDER = Path(__file__).parent / "shim"

CPU_ARGUMENTS: dict[str, Any] = {
    "device": "cpu",
    # The engine's log-probs then agree with Hugging Face's to 1e-5; bfloat16 is off by up to 0.2.
    "dtype": "float32",
    # The only attention and sampling that need no kernel package.
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.1,
    "max_total_tokens": 32768,
    # Without it an idle scheduler burns most of a core.
    "sleep_on_idle": True,
}
"""SGLang's arguments on a CPU; the settings' own win over them."""


def cpu_environment() -> dict[str, str]:
    """Environment variables of an engine process on a CPU."""
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        # Two threads on a busy machine spin in barriers and cost a factor of ten.
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(SHIM_FOLDER),
    }
