"Limits, the variables that raise them, and what is said."
import pytest

from loflexmdm.support.limits import ROWS, SMILES, SPENDING, Budget, Limit, check_time, too_long

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


def test_a_budget_lowers_limits_and_never_raises_them():
    with Budget(rows=100, seconds=60).enforce():
        assert ROWS.now == 100 and SMILES.now == SMILES.most
        with Budget(rows=7).enforce(): assert ROWS.now == 7
        with pytest.raises(ValueError, match="^rows: 101 sequences; at most 100 are allowed$"): Budget(rows=101).begin()
        assert Budget(seconds=5).begin().end < Budget().begin().end <= SPENDING.get().end
    assert ROWS.now == ROWS.most


@pytest.mark.parametrize("n", [0, -1, float("nan"), "5", True])
def test_a_budget_is_of_positive_numbers(n):
    with pytest.raises(ValueError, match="seconds=.*: must be a positive number"): Budget(seconds=n).begin()


def test_parts_are_computed_within_the_budget_and_not_what_follows_them():
    def parts():
        for _ in range(2): yield ROWS.now
    assert [(part, ROWS.now) for part in Budget(rows=5).each(parts())] == [(5, ROWS.most)] * 2


def test_time_that_is_over_and_work_that_nobody_waits_for_end():
    with Budget(seconds=1e-9).enforce():
        with pytest.raises(TimeoutError, match="seconds=1e-09: the time is over"): check_time()
    with Budget().enforce(lambda: True), pytest.raises(TimeoutError, match="nobody waits"):
        with Budget(seconds=60).enforce(): check_time()
    check_time()


@pytest.mark.parametrize("smiles, long", [
    ("C" * 15_000, False), ("C" * 15_001, True), ("C1CC1" * 1000, False), ("C1CC1" * 1001, True),
    ("C%11CC%11" * 1000, False), ("C%11CC%11" * 1001, True), ("[13CH2+2]" * 1000, False), ("C<%598>" * 2000, False),
    ("", False),
])
def test_a_smiles_is_too_long_by_its_characters_or_its_rings(smiles, long): assert too_long(smiles) == long
