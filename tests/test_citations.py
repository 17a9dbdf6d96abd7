import re
from pathlib import Path

import pytest

import loflexmdm
from loflexmdm.citations import BIBTEX, SAMPLER_NAMES, SAMPLERS, TASK_PAPERS, WHY, Citation, citation, fields_of, known_names, read_entries
from loflexmdm.cli import main
from loflexmdm.methods.base import METHOD_MODULES, METHODS, method_class
from loflexmdm.methods.lo_flexmdm import LoFlexMDM
from loflexmdm.samplers import EventDriven, TauLeaping
from loflexmdm.tasks.base import BUILT_IN, task_from

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("key", BIBTEX)
def test_entry_is_well_formed(key):
    f = fields_of(BIBTEX[key])
    assert f["author"] and f["title"] and re.fullmatch(r"\d{4}", f.get("year", "2000"))
    assert BIBTEX[key].startswith("@") and f"{{{key}," in BIBTEX[key].splitlines()[0]
    assert ("eprint" in f) == ("archiveprefix" in f) and re.fullmatch(r"\d{4}\.\d{5}", f.get("eprint", "2000.00000"))
    assert not re.search(r"[^\x00-\x7f]", BIBTEX[key]), "old BibTeX reads ASCII only"


def test_every_entry_says_why(): assert WHY.keys() == BIBTEX.keys()


@pytest.mark.parametrize("text, message", [("@misc{k,\n  author = {A},\n}", "no title"), ("@misc{k,\n  author = {A},\n  title = {B,\n}", "not an entry"), ("hello", "not the first line"),
                                           ("@misc{k,\n  author = {A},\n  title = {B},\n}\n\n" * 2, "given twice")])
def test_malformed_entries_are_refused(text, message):
    with pytest.raises(ValueError, match=message): read_entries(text)


def test_package_is_in_step_with_citation_file():
    cff, f = (ROOT / "CITATION.cff").read_text(), fields_of(BIBTEX["loflexmdm"])
    assert f"version: {f['version']}" in cff and f["author"].strip("{}") in cff and citation().keys == ("loflexmdm",)


@pytest.mark.parametrize("name", METHOD_MODULES)
def test_methods_list_known_keys(name):
    cls = method_class(name)
    assert cls.papers and set(cls.papers) <= BIBTEX.keys()
    assert citation(name).keys == citation(cls).keys == cls.papers


def test_samplers_and_tasks_list_known_keys():
    assert {k for keys in SAMPLERS.values() for k in keys} <= BIBTEX.keys() and set(SAMPLER_NAMES.values()) == SAMPLERS.keys()
    assert TASK_PAPERS.keys() <= BUILT_IN.keys() and {k for why in TASK_PAPERS.values() for k in why} <= BIBTEX.keys()


def test_options_of_a_sampler_count():
    assert "nucleus" not in citation(TauLeaping(steps=4)).keys and "nucleus" in citation(TauLeaping(steps=4, top_p=0.5)).keys
    assert "token_order" in citation(EventDriven(confidence="top_prob")).keys and citation(EventDriven).keys == citation("event").keys


def test_model_brings_method_and_task():
    model = loflexmdm.load("star-tiny")
    assert citation(model).keys == citation("star-tiny").keys == (*LoFlexMDM.papers, "ilm") and citation(task_from(model.task)).keys == ("ilm",)
    assert citation("star-tiny", "star").found["ilm"] == ("task star: the star graphs",)


def test_printed_it_is_bibtex_with_reasons():
    c = citation("flexmdm", "event", "star")
    assert isinstance(c, Citation) and len(c) == len(c.keys)
    assert list(read_entries("\n".join(line for line in repr(c).splitlines() if not line.startswith("%")))) == list(c.keys) == list(read_entries(c.bibtex))
    assert "% task star: the star graphs" in repr(c) and "Patel et al." in c._repr_markdown_()


def test_runs_can_be_cited_without_their_weights(tmp_path):
    loflexmdm.load("star-tiny").save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    assert citation(tmp_path / "m").keys == citation("star-tiny").keys


@pytest.mark.parametrize("what", ["star-huge", 3, None, object()])
def test_unknown_is_refused(what):
    with pytest.raises(ValueError): citation(what)


def test_missing_entry_is_an_error_not_a_gap():
    class Mine(LoFlexMDM):
        name, papers = "mine", ("mine2026",)
    METHODS.pop("mine")
    with pytest.raises(ValueError, match="no such entry"): citation(Mine)


def test_lazy_and_on_the_command_line(capsys):
    assert loflexmdm.citation is citation and "citation" in dir(loflexmdm)
    assert main(["cite", "brackets"]) == 0 and "nothing to cite" in capsys.readouterr().out
    assert main(["cite", "star-tiny", "tau"]) == 0 and "@article{tau_leaping," in capsys.readouterr().out
    assert main(["cite", "nobody"]) == 2 and capsys.readouterr().err.count("\n") == 1
    assert all(citation(n) is not None for n in known_names())
