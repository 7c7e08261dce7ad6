"""Signals wait for the next check, and the handlers of before come back."""

import os
import signal

import pytest

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
