"""A run on a machine without accelerators stays quiet where a plan's compilers are installed."""

import importlib.util
import os

import pytest

from experiments import accelerators


def test_any_of_several_devices_counts(monkeypatch, tmp_path):
    known = {f"{tmp_path}{pattern}": name for pattern, name in accelerators.SHOWN.items()}
    monkeypatch.setattr(accelerators, "SHOWN", known)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert accelerators.shown() is None
    (tmp_path / "dev" / "nvidia3").touch()
    assert accelerators.shown() == "an NVIDIA GPU"


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("told", [None, "cuda"])
def test_the_cpu_is_chosen_only_where_nothing_else_is(monkeypatch, tmp_path, installed, there, told):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if told:
        monkeypatch.setenv("JAX_PLATFORMS", told)
    monkeypatch.setattr(accelerators, "SHOWN", {str(tmp_path) if there else "/nowhere": "an NVIDIA GPU"})
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: installed or None)
    accelerators.keep_quiet()
    assert os.environ.get("JAX_PLATFORMS") == (told or ("cpu" if installed and not there else None))
