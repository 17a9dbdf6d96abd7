"Which signals stop a run, and what is theirs again afterwards."
import os
import signal

import pytest

from loflexmdm.support.stop_signals import Stopped, hangups_are_ignored, interruptible, stop_signals

HANDLERS = signal.SIG_DFL, signal.SIG_IGN


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP here")
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_closed_terminal_stops_a_run_unless_it_is_ignored_as_under_nohup(handler):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert hangups_are_ignored() == (handler == signal.SIG_IGN)
        with stop_signals() as caught:
            for number in (signal.SIGTERM, signal.SIGINT): os.kill(os.getpid(), number)
            noted = [signal.SIGTERM, signal.SIGINT]
            if handler == signal.SIG_DFL: noted.append(signal.SIGHUP)
            if handler == signal.SIG_DFL: os.kill(os.getpid(), signal.SIGHUP)
            assert caught == noted
        assert signal.getsignal(signal.SIGHUP) == handler
    finally: signal.signal(signal.SIGHUP, before)


def test_behind_what_may_be_left_undone_a_signal_is_noted_and_no_more():
    with stop_signals() as caught:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        with interruptible(): pass
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        os.kill(os.getpid(), signal.SIGTERM)
        assert caught == [signal.SIGTERM]
        with pytest.raises(Stopped, match="SIGTERM"):  # it came before
            with interruptible(): raise AssertionError
