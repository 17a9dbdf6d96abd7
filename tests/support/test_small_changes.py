"Formulas and boundaries where a small change of the code would go unnoticed."
from loflexmdm.support.records import _document
from loflexmdm.support.stop_signals import Interrupted


def test_a_document_of_one_list_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"rows": ["ab", "c"]}')
    assert _document(path) == ["ab", "c"]


def test_an_interruption_names_signal_and_step():
    stopped = Interrupted(15, 7)
    assert (stopped.number, stopped.step) == (15, 7) and str(stopped) == "SIGTERM at step 7: saved"
