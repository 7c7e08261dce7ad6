"""Numbers of others, to hold ours against. None compares: models, budgets and data are others."""

# Test accuracy, percent, one run each, on the tasks of Long Range Arena: Tay et al. 2021, table 1.
ARENA = {
    "listops": {
        "Transformer": 36.37, "Local": 15.82, "Sparse": 17.07, "Longformer": 35.63, "Linformer": 35.70,
        "Reformer": 37.27, "Sinkhorn": 33.67, "Synthesizer": 36.99, "BigBird": 36.05, "Linear": 16.13,
        "Performer": 18.01,
    },
    "text": {
        "Transformer": 64.27, "Local": 52.98, "Sparse": 63.58, "Longformer": 62.85, "Linformer": 53.94,
        "Reformer": 56.10, "Sinkhorn": 61.20, "Synthesizer": 61.68, "BigBird": 64.02, "Linear": 65.90,
        "Performer": 65.40,
    },
}  # fmt: skip


def line(task: str) -> str:
    """What was published on a task, in a sentence; "" if nothing was."""
    numbers = ARENA.get(task)
    if numbers is None:
        return ""
    told = ", ".join(f"{name} {value:.2f}%" for name, value in numbers.items())
    return (
        "Published (Long Range Arena, Tay et al. 2021, table 1; larger models, longer inputs, one run each, "
        f"so not comparable): {told}."
    )
