"Scores of texts: units, the name of the bound, batches; a file of texts scored at the shell; room on the disk."
import csv
import itertools
import json
import math
import re
from unittest import mock

import pytest
import torch

import loflexmdm
from loflexmdm.models.language_model import Likelihoods
from loflexmdm.models.model import Scores
from loflexmdm.support.atomic_files import check_room
from loflexmdm.training.recipes import recipe_from
from commands import call, status_of

TEXTS = ["".join(letters) for letters in itertools.product("ab", repeat=5)]


@pytest.fixture(scope="module", params=["ar", "ordered-insertion"])
def run(request, tmp_path_factory):
    "A model of a few steps, its directory, and the file that it was trained on."
    place = tmp_path_factory.mktemp("scores")
    (place / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    task = dict(kind="text", file=str(place / "texts.txt"), unit="characters")
    tables = dict(task=task, model=dict(method=request.param, size="nano"), train=dict(steps=2, batch_size=4))
    recipe_from(tables).trainer(place / "run", progress=False).fit()
    return loflexmdm.load(place / "run"), place


def test_units_and_the_name_of_the_bound(run):
    model, _ = run
    nats, bits = model.score(TEXTS[:3], 4), model.score(TEXTS[:3], 4, unit="bits")
    torch.testing.assert_close(bits.values * math.log(2), nats.values)
    torch.testing.assert_close(nats.values, nats.nats)
    torch.testing.assert_close(bits.errors * math.log(2), nats.error)
    exact = model.method.name == "ar"
    assert bits.exact == exact and repr(bits).endswith("bits)") and ("<=" in repr(bits)) == (not exact)
    assert bits.bound == ("-log p, exact" if exact else "upper bound on -log p")
    with pytest.raises(ValueError, match="unit='dits': choose one of nats, bits"): model.score(["ab"], 4, unit="dits")
    with pytest.raises(ValueError, match="at least one"): model.score([])


def test_many_texts_are_scored_in_batches(run):
    model, _ = run
    several, alone = model.score(TEXTS, 4, batch_size=5), model.score(TEXTS[:5], 4)
    torch.testing.assert_close(several.nats[:5], alone.nats)
    assert len(several.nats) == len(TEXTS)
    if model.method.exact: torch.testing.assert_close(model.score(TEXTS).nats, several.nats)


def test_exact_scores_draw_no_states_and_have_no_limit_of_them(run, monkeypatch):
    model, _ = run
    monkeypatch.setenv("LOFLEXMDM_MAX_STATES", "10")
    if model.method.exact: assert len(model.score(TEXTS[:6], 2).nats) == 6
    else:
        with pytest.raises(ValueError, match="at most 10 are allowed"): model.score(TEXTS[:6], 2)


def test_the_worst_token_is_the_least_probable_of_a_text(run):
    model, _ = run
    scores = model.score(["abbaa", "az"], 4)
    if not model.method.exact:
        assert scores.worst == []
        return
    after = Likelihoods(model).loglikelihood([("abbaa"[:i], "abbaa"[i]) for i in range(5)])
    nats = [-log_p for log_p, _ in after]
    most, token = max(zip([*nats, scores.nats[0].item() - sum(nats)], [*"abbaa", "(end)"]))
    assert scores.worst == [(token, pytest.approx(most, abs=1e-4)), ("", math.inf)]


def test_a_file_is_scored_by_a_model(run):
    model, place = run
    (place / "more.txt").write_text("ab\naz\nba\n" + "a" * 99 + "\n")
    out = place / "scores.csv"
    line = f"evaluate {place}/more.txt --model {place}/run --nll 4"
    code, figures, _ = call(line, "--out", out)
    assert code == 0 and "2 kept; left out: 1 token 'z' is outside the vocabulary, 1 99 tokens" in status_of(line)[1]
    rows = list(csv.DictReader(out.open()))
    assert [(row["number"], row["text"]) for row in rows] == [("1", "ab"), ("2", "az"), ("3", "ba"), ("4", "a" * 99)]
    assert [bool(row["reason"]) for row in rows] == [False, True, False, True] and rows[1]["nats"] == ""
    assert [bool(row.get("worst")) for row in rows] == [model.method.exact, False] * 2
    by_python = model.score(["ab", "ba"], 4).nats.tolist()
    assert [float(row["nats"]) for row in rows if row["nats"]] == pytest.approx(by_python, abs=1e-3)
    name = "nll " if model.method.exact else "nll_bound"
    mean = float(re.search(rf"^{name.strip()} +([\d.]+)", figures, re.M)[1])
    assert mean == pytest.approx(sum(by_python) / 2, abs=1e-3) and "bits_per_character" in figures
    out.unlink()


def test_a_log_tells_how_far_the_scores_are(run):
    _, place = run
    line = f"evaluate {place}/texts.txt --model {place}/run --nll 4"
    with mock.patch("loflexmdm.support.progress.FIRST_LINE", 0.0):
        assert "score: 32 of 32" in call(line)[2] and "score:" not in call(f"{line} --quiet")[2]


def test_the_bound_says_of_how_many_sequences_and_how_many_have_a_part_given(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    task = dict(kind="text", file=str(tmp_path / "texts.txt"), unit="characters", infill=0.5, test_share=0.5)
    model = dict(method="ordered-insertion", size="nano")
    recipe = recipe_from(dict(task=task, model=model, train=dict(steps=1, batch_size=4)))
    recipe.trainer(tmp_path / "run", progress=False).fit()
    held_out = recipe.build()[0].dataset("test")
    given = sum(any(held_out[i].fixed[1:]) for i in range(10))
    assert call(f"evaluate {tmp_path}/run -n 10 --nll 2 --task-data --out {tmp_path}/e.json")[0] == 0
    figures = json.loads((tmp_path / "e.json").read_text())["figures"]
    assert (figures["nll_sequences"], figures["nll_given"]) == (10, given) and 0 < given < 10


def test_the_first_texts_and_metrics_as_json(run):
    _, place = run
    out = place / "figures.json"
    code, said = status_of(f"evaluate {place}/texts.txt --model {place}/run --nll 4 -n 5 --out {out}")
    assert code == 0 and "5 records, 5 kept" in said and json.loads(out.read_text())["figures"]["n"] == 5


@pytest.mark.parametrize("text, said", [("zz\n", "no text that the model can score"), ("", "holds no|no text")])
def test_nothing_to_score(run, text, said):
    _, place = run
    (place / "none.txt").write_text(text)
    code, out, err = call(f"evaluate {place}/none.txt --model {place}/run")
    assert code == 2 and not out
    assert re.search(said, err)


def test_scores_of_a_coin():
    coin = Scores(torch.tensor([3 * math.log(2)]), torch.zeros(1), "bits", exact=True)
    assert repr(coin) == "Scores(-log p = 3.000 bits)" and coin.bits.item() == pytest.approx(3)


def full(place): return mock.Mock(free=10**6)


def test_a_full_disk_is_noticed_before_a_long_run(run, tmp_path, monkeypatch):
    _, place = run
    monkeypatch.setattr("shutil.disk_usage", full)
    with pytest.raises(OSError, match="are needed for a run, and 1 MB are free; free some of the disk, or choose"):
        check_room(tmp_path / "none", 5e8, "a run")
    line = f"train {place}/texts.txt --unit characters --steps 1 --out {tmp_path}/run"
    code, _, err = call(line)
    assert code == 2 and "checkpoints, and 1 MB are free" in err
    code, _, err = call(f"sample {place}/run -n 3 --out {tmp_path}/made.jsonl")
    assert code == 2 and "3 sequences, and 1 MB are free" in err
    code, _, err = call(f"optimize --objective qed --way random --budget 5 --out {tmp_path}/calls.jsonl")
    assert code == 2 and "5 calls, and 1 MB are free" in err
