"Limits, the variables that raise them, and what is said."
import pytest

from loflexmdm.support.limits import Limit

FEW = Limit(1000, "letters", "LOFLEXMDM_MAX_FOR_TESTS")


@pytest.mark.parametrize("n, shown", [
    (1001, "1,001"), (10**15 - 1, "999,999,999,999,999"), (10**15, "more than 10^15"),
])
def test_what_is_too_much_is_said_with_its_number(n, shown):
    FEW.check(1000, "a word")
    with pytest.raises(ValueError, match="^a word: ") as e: FEW.check(n, "a word")
    assert f": {shown} letters; at most 1,000 are allowed; set {FEW.variable}" in str(e.value)


@pytest.mark.parametrize("text, now", [("", 1000), ("7", 7), ("2000", 2000)])
def test_a_variable_holds_another_number(monkeypatch, text, now):
    monkeypatch.setenv(FEW.variable, text)
    assert FEW.now == now


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e3", "²", "9" * 20])
def test_a_variable_without_a_positive_whole_number_is_refused(monkeypatch, text):
    monkeypatch.setenv(FEW.variable, text)
    with pytest.raises(ValueError, match=f"{FEW.variable}=.*: must be a positive whole number"): FEW.check(1, "a word")
