"""Where a number comes from: code, versions, machine, device, settings of the compiler."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

from experiments import accelerators, files

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("attention", "experiments")
# What measuring itself writes, and a working tree may differ in.
WRITTEN = (
    "results", "docs/performance.md", "docs/plans.md", "docs/savings.md", "docs/kills.md",
    "docs/mutants.md", "docs/images",
    "README.md",
)  # fmt: skip
SOURCES = (".", *(f":(exclude){path}" for path in WRITTEN))
# What is new counts if it can be code; runs may be kept inside the checkout.
NEW_SOURCES = (*(f"*{suffix}" for suffix in (".py", ".cfg", ".toml")), *SOURCES[1:])
# Packages whose version can change a bit of the result; the others are recorded too.
NUMERIC = ("jax", "jaxlib", "flax", "optax", "numpy", "grain", "orbax-checkpoint", "ml_collections")
DEVICE_LIBRARIES = {"gpu": ("jax-cuda", "jax-rocm", "nvidia-"), "METAL": ("jax-metal",), "tpu": ("libtpu",)}
SWITCHES = ("XLA_", "OMP_", "MKL_", "LIBTPU_", "GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD")  # environment
JAX_SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_threefry_partitionable",
)
CODE = "code"
PROCESSOR = ("processor", "usable cores")  # in `differences`: another one may round otherwise


def gather(devices_used: int = 1) -> dict[str, Any]:
    """Everything that decides this process's numbers and that its config does not say."""
    return {
        "code_sha256": code_sha256(),
        "git": git(),
        "python": platform.python_version(),
        "packages": packages(),
        "machine": machine(),
        "device": device(devices_used),
        "environment": switches(),
        "jax_settings": {name: getattr(jax.config, name) for name in JAX_SETTINGS},
    }


def switches() -> dict[str, str]:
    """Variables of the environment that change what is compiled, or how it runs."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(SWITCHES)}


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """What differs between two results of `gather` and may change a number: name -> the two values, short.

    The source code is under the name `CODE`.
    """
    left, right = _decisive(one), _decisive(other)
    return {name: (_short(left[name]), _short(right[name])) for name in left if left[name] != right[name]}


def code_sha256(packages: tuple[str, ...] = PACKAGES) -> str:
    """Hash of the names and contents of all source files of the packages."""
    total = hashlib.sha256()
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            total.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def git() -> dict[str, Any] | None:
    """Commit, and what the working tree has beyond it; None where the code is no git checkout."""
    top, commit = _git("rev-parse", "--show-toplevel"), _git("rev-parse", "HEAD")
    if top is None or commit is None or Path(top.strip()).resolve() != ROOT:
        return None
    tracked, changed = _git("status", "--porcelain", "--untracked-files=no", "--", *SOURCES), diff()
    known = ["git status failed"] if tracked is None else tracked.splitlines()
    status = known + [f"?? {path}" for path in _new_files()]
    return {
        "commit": commit.strip(),
        "dirty": bool(status),
        "status": status,
        "diff_sha256": hashlib.sha256(_bytes(changed)).hexdigest() if changed else None,
    }


def diff() -> str:
    """What the working tree has beyond the commit, new source files too; "" if nothing or no git checkout.

    Bytes that are not UTF-8 are surrogates (PEP 383).
    """
    tracked = _git("diff", "HEAD", "--", *SOURCES) or ""
    # With --no-index git's exit status says whether the files differ.
    parts = [
        _git("diff", "--no-index", "--", os.devnull, path, accepted=(0, 1)) or "" for path in _new_files()
    ]
    return tracked + "".join(parts)


def keep_diff(folder: Path) -> None:
    """Keep what the working tree has beyond the commit, if anything, in a folder."""
    if changed := _bytes(diff()):
        files.write(folder / f"dirty-{hashlib.sha256(changed).hexdigest()[:8]}.diff", changed)


def origin(gathered: dict[str, Any]) -> str:
    """Machine, versions and commit in one line."""
    machine, device = gathered["machine"], gathered["device"]
    packages = ", ".join(f"{name} {gathered['packages'][name]}" for name in ("jax", "jaxlib", "numpy"))
    return (
        f"{machine['processor']}, {machine['usable_cores']} cores, {device['platform']}; "
        f"Python {gathered['python']}, {packages}; {commit(gathered)}"
    )


def commit(gathered: dict[str, Any]) -> str:
    """The commit, and whether the working tree differed from it, in a phrase."""
    git = gathered["git"]
    if git is None:
        return "no commit"
    return f"commit {git['commit'][:12]}" + (", dirty" if git["dirty"] else "")


def packages() -> dict[str, str]:
    """Version of every installed distribution."""
    found = importlib.metadata.distributions()
    return dict(sorted((d.metadata["Name"], d.version) for d in found if d.metadata["Name"]))


def machine() -> dict[str, Any]:
    """System, processor, cores (of the machine, and open to this process) and memory in bytes."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "memory_bytes": pages,
    }


def device(used: int) -> dict[str, Any]:
    """Platform, kind and number of the devices that there are, and how many of them are used."""
    devices = jax.devices()
    kind = {"platform": devices[0].platform, "kind": devices[0].device_kind}
    runtime = " ".join(devices[0].client.platform_version.split())
    return {**kind, "count": len(devices), "used": used, "runtime": runtime}


def idle_accelerator() -> str | None:
    """What accelerator this machine shows that jax does not use without having been told to use the CPU."""
    if jax.devices()[0].platform != "cpu" or _platforms().split(",")[0] == "cpu":
        return None
    name = accelerators.shown()
    return name and f"this machine has {name}"


def _platforms() -> str:
    return jax.config.jax_platforms or ""  # pyright: ignore[reportAttributeAccessIssue]


def _decisive(gathered: dict[str, Any]) -> dict[str, Any]:
    device = gathered["device"]
    libraries = DEVICE_LIBRARIES.get(device["platform"], ())  # those of others may lie beside it, for plans
    return {
        CODE: gathered["code_sha256"],
        "Python": gathered["python"],
        **{name: gathered["packages"].get(name) for name in NUMERIC},
        "the device's libraries": " ".join(
            f"{name} {version}"
            for name, version in gathered["packages"].items()
            if name.replace("_", "-").startswith(libraries)
        ),
        "runtime": device.get("runtime"),
        "device": f"{device['count']} x {device['platform']} {device['kind']}",
        "processor": gathered["machine"]["processor"],
        "usable cores": gathered["machine"]["usable_cores"],
        **{name: gathered["jax_settings"].get(name) for name in JAX_SETTINGS},
        "environment": " ".join(f"{name}={value}" for name, value in gathered["environment"].items()),
    }


def _short(value: Any) -> str:
    text = str(value) or "nothing"
    return text if len(text) <= 40 else f"{text[:12]}..."


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _git(*arguments: str, accepted: tuple[int, ...] = (0,)) -> str | None:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout) if done.returncode in accepted else None


def _new_files() -> list[str]:
    found = _git("ls-files", "--others", "--exclude-standard", "-z", "--", *NEW_SOURCES) or ""
    return [path for path in found.split("\0") if path]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
