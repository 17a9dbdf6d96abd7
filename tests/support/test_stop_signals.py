"Which signals stop a run, and what is theirs again afterwards."
import os
import signal

import pytest

from loflexmdm.support.stop_signals import hangups_are_ignored, stop_signals

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
