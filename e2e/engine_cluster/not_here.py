"""What `make e2e-engine` cannot show on a CPU, and why. The target prints this list at its end."""

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
    return [f"  {what}: {why}" for what, why in NOT_HERE]
