"""What `make e2e-engine` does not show, and why. The target prints this list at its end."""

import os

MORE = os.environ.get("E2E_MORE") == "1"
"""Whether what does not fit into 40 minutes on two slow cores runs too."""
MORE_HINT = "11 minutes more than the 40 that all of it has on two slow cores: E2E_MORE=1"
ONLY_WITH_MORE = "vLLM 0.31 to 0.32 with the same arguments, which proves itself and takes over"

NOT_HERE: tuple[tuple[str, str], ...] = (
    ("ngram_gpu", "needs pinned memory and a GPU; that it is refused on CPU is shown by make test-engine"),
    ("mtp, dspark, dflash", "no checkpoint with such layers is small enough; dspark needs the V2 runner (GPU)"),
    (
        "gain of EAGLE, EAGLE-3 and Medusa heads",
        "the heads have random weights: that they start, answer and are measured is shown, not that they gain",
    ),
    ("CUDA graph capture, GPU memory profiling, MIG, tensor parallel", "no GPU: docs/gpus.md says what changes"),
    ("quantised targets", "the CPU engine has no kernel for them at this size"),
    ("out of memory on the device", "a CPU engine ends by the kernel's OOM killer, which make e2e shows on pods"),
    ("a loss of agreement", "greedy texts of both arms come from the same kernels here"),
)


def lines() -> list[str]:
    """One line per thing."""
    left = NOT_HERE if MORE else ((ONLY_WITH_MORE, MORE_HINT), *NOT_HERE)
    return [f"  {what}: {why}" for what, why in left]
