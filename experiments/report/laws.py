"""Which laws a variant passed, by what `python -m tests.laws` left."""

from experiments import files, provenance

PATH = provenance.ROOT / "results" / "laws.json"
Tally = dict[str, int]  # "passed", "failed", "skipped"


def told(name: str) -> str:
    """A sentence on a variant; where nothing is known of it, how it would be."""
    try:
        kept = files.read_json(PATH)
        own: dict[str, Tally] = kept["variants"].get(name, {})
        now = kept["attention_sha256"] == provenance.code_sha256(("attention",))
        commit = kept["commit"]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        own, now, commit = {}, False, ""
    if not own:
        return "Whether it keeps the laws is not known here: `python -m tests.laws` tells."
    passed, skipped = (sum(tally[kind] for tally in own.values()) for kind in ("passed", "skipped"))
    kept_laws = [law for law, tally in own.items() if tally["passed"] and not tally["failed"]]
    broken = [f"{law} ({tally['failed']} checks)" for law, tally in own.items() if tally["failed"]]
    code = "attention/ as it is here" if now else f"commit {commit}; attention/ has changed since"
    fails = f" Broken: {', '.join(sorted(broken))}." if broken else ""
    return (
        f"Laws kept: {', '.join(sorted(kept_laws, key=int))} ({passed} checks, {skipped} not asked of it), "
        f"by {code}.{fails}"
    )
