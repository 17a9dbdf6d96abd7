"Lines of progress for a log file, and bars where somebody watches."
from loflexmdm.support import progress
from loflexmdm.support.progress import LogLines, duration, is_visible, progress_bar


def test_a_log_file_gets_lines_that_become_rare(monkeypatch):
    monkeypatch.setattr(progress.time, "strftime", lambda form: "08:00:00")
    now, lines = 0.0, []
    log = LogLines(1000, "training", " steps", initial=100, clock=lambda: now, write=lines.append)
    log.n, now = 101, 10.0
    assert log.line(now) == "08:00:00 training: 101 of 1,000 steps, 2.5 h left"  # 899 steps of ten seconds
    log.n, now = 100, 0.0
    for _ in range(200):
        now += 1.0
        log.set_postfix(dict(bound="7.5"))
        log.update()
    assert lines[0] == "08:00:00 training: 130 of 1,000 steps, bound 7.5, 14 min left"  # 870 steps of a second
    assert [int(line.split()[2]) - 100 for line in lines] == [30, 75, 143]


def test_lines_where_nobody_watches_and_a_bar_on_a_terminal(monkeypatch):
    assert isinstance(progress_bar(3, "work"), LogLines) and progress_bar(3, "work", disable=True).disable
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    assert is_visible()
    assert [duration(s) for s in (3, 99, 600, 7200)] == ["3 s", "99 s", "10 min", "2.0 h"]
