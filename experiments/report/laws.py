"""Which laws a variant kept, by what `python -m tests.laws` left."""

from experiments import files, provenance
from experiments.model import registry
from experiments.shape import ANY, INDEX, wrong

PATH = provenance.ROOT / "results" / "laws.json"
JUDGED = ("attention", "tests/attention")  # what is hashed: the variants and their laws
KINDS = ("passed", "failed", "skipped")
TALLY = dict.fromkeys(KINDS, int)
SHAPE = {"variants": {ANY: {INDEX: TALLY}}, "code_sha256": str, "commit": str, "packages": {ANY: str}}
Tally = dict[str, int]  # of KINDS


def told(name: str) -> str:
    """A sentence on a variant; where nothing is known of it, how it would be."""
    if "+" in name or name in registry.RECURRENT:
        return "The laws are those of attention, of one variant alone."
    try:
        kept = files.read_json(PATH)
    except (OSError, ValueError):
        kept = {}
    own: dict[str, Tally] = {} if wrong(kept, SHAPE) else kept["variants"].get(name, {})
    if not own:
        return "Whether it keeps the laws is not known here: `python -m tests.laws` tells."
    broken = {law: tally for law, tally in own.items() if tally["failed"]}
    whole = {law: tally for law, tally in own.items() if tally["passed"] and law not in broken}
    passed, skipped = (sum(tally[kind] for tally in whole.values()) for kind in ("passed", "skipped"))
    now = kept["code_sha256"] == provenance.code_sha256(JUDGED)
    code = "the code as it is here" if now else f"commit {kept['commit']}; the code has changed since"
    laws = ", ".join(sorted(whole, key=int)) or "none"
    kept_laws = f"Laws kept (section 3 of docs/design.md says what they are): {laws}"
    sentences = [f"{kept_laws} ({passed} checks, {skipped} not asked of it), by {code}."]
    if broken:
        each = (f"{law} ({broken[law]['failed']} failed)" for law in sorted(broken, key=int))
        sentences.append(f"Laws broken: {', '.join(each)}.")
    return " ".join(sentences)
