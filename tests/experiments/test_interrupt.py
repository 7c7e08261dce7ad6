"""Signals wait for the next check, and the handlers of before come back."""

import ast
import os
import signal
import subprocess
import sys

import pytest

from experiments import provenance
from experiments.interrupt import Interrupted, Interrupts


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_waits_for_the_check(number, exit_code):
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), number)
        with pytest.raises(Interrupted, match=number.name) as caught:
            interrupts.check()
        assert caught.value.exit_code == exit_code
        interrupts.check()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_does_not_wait():
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_a_command_that_prints_without_a_word():
    code = (
        "import os, signal; from experiments.interrupt import end_with_the_reader; end_with_the_reader(); "
        "os.kill(os.getpid(), signal.SIGINT); print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")  # a shell says 130


@pytest.mark.parametrize("room", ["report", "cite", "reproduce", "diagnose"])
def test_it_does_so_before_jax_is_imported(room):
    text = (provenance.ROOT / "experiments" / room / "__main__.py").read_text()
    begun = next(node for node in ast.parse(text).body if isinstance(node, ast.If))
    before = [
        n.module for n in ast.parse(text).body if isinstance(n, ast.ImportFrom) and n.lineno < begun.lineno
    ]
    assert "end_with_the_reader()" in ast.unparse(begun)
    assert [name for name in before if name != "pathlib"][-1:] == ["experiments.interrupt"]
    assert not {"experiments", "experiments.report"} & {*before}
