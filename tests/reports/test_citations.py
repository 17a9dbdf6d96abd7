"Citations: the entries, what is cited for what, and the papers of parts that other packages bring."
import re
from pathlib import Path

import pytest

import loflexmdm
from loflexmdm.cli import main
from loflexmdm.methods.base import method_class
from loflexmdm.methods.lo_flexmdm import LoFlexMDM
from loflexmdm.reports.citations import Citation, bibtex_text, citation, field_of, known_names, paper, papers
from loflexmdm.samplers import EventDriven, Sampler, TauLeaping
from loflexmdm.support.registries import METHODS, SAMPLERS, TASKS
from loflexmdm.tasks.base import Task, task_from

ROOT = Path(__file__).parents[2]
OWN = "@article{own2026, author = {Doe, Jane}, title = {My {BERT} Own}, year = 2026}"


def test_entries_are_what_bibtex_reads():
    "Every entry is well formed; a library reads the same fields from the text that is printed."
    database = pytest.importorskip("pybtex.database", reason="pybtex is not installed")
    printed = database.parse_string("\n".join(map(bibtex_text, papers().values())), "bibtex").entries
    assert list(printed) == list(papers())
    for key, text in papers().items():
        f = printed[key].fields
        assert field_of(text, "why") and "why" not in f and not re.search(r"[^\x00-\x7f]", text), key
        assert re.fullmatch(r"\d{4}", f.get("year", "2000")) and ("eprint" in f) == ("archiveprefix" in f), key
        assert re.fullmatch(r"\d{4}\.\d{5}", f.get("eprint", "2000.00000")), key
        plain = {name: re.sub("[{}]", "", value) for name, value in f.items()}
        assert plain == {name: field_of(text, name) for name in f}
        assert len(field_of(text, "author").split(" and ")) == len(printed[key].persons["author"]), key


def test_package_is_in_step_with_citation_file():
    cff, entry = (ROOT / "CITATION.cff").read_text(), papers()["loflexmdm"]
    assert f"version: {field_of(entry, 'version')}" in cff and field_of(entry, "author") in cff
    assert citation().keys == ("loflexmdm",)


def is_key_or_entry(cited) -> bool: return all(paper(k) for k in cited)


@pytest.mark.parametrize("name", [name for name in METHODS.names() if "(test)" not in name])
def test_methods_list_known_keys(name):
    cls = method_class(name)
    assert cls.papers and is_key_or_entry(cls.papers)
    assert citation(name).keys == citation(cls).keys and len(citation(name).keys) == len(cls.papers)


def test_samplers_and_tasks_list_known_keys():
    for registry in (SAMPLERS, TASKS):
        for cls in registry.all().values(): assert is_key_or_entry(cls.papers), cls


@pytest.fixture
def parts():
    "A method, a sampler and a task of another package, each with a paper of its own."
    class OwnMethod(LoFlexMDM): name, papers = "own-method", ("flexmdm", OWN)
    class OwnSampler(Sampler): name, papers = "own-sampler", (OWN,)
    class OwnTask(Task): kind, papers = "own-task", {OWN: "its data", "ilm": "its graphs"}
    yield OwnMethod, OwnSampler, OwnTask
    for registry, name in ((METHODS, "own-method"), (SAMPLERS, "own-sampler"), (TASKS, "own-task")):
        del registry.classes[name]


def test_whole_entries_stand_for_keys(parts):
    for part, name in zip(parts, ("own-method", "own-sampler", "own-task"), strict=True):
        assert "own2026" in citation(part).keys and citation(part).bibtex == citation(name).bibtex
    c = citation(*parts)
    assert c.keys == ("flexmdm", "own2026", "ilm")
    assert "% task own-task: its data" in repr(c)
    assert c.bibtex.count("own2026") == 1
    assert "title = {My {BERT} Own}" in c.bibtex and "Doe, *My BERT Own*, 2026" in c._repr_markdown_()


@pytest.mark.parametrize(
    "reference, message",
    [
        ("own2026", "no such entry in papers.bib"),
        (OWN + OWN.replace("own", "two"), "a whole BibTeX entry"),
        ("@article{x", "a whole BibTeX entry"),
    ],
)
def test_wrong_references_are_refused(reference, message):
    class Wrong(LoFlexMDM): name, papers = "wrong", (reference,)
    METHODS.classes.pop("wrong")
    with pytest.raises(ValueError, match=message): citation(Wrong)


def test_options_of_a_sampler_count():
    assert "nucleus" not in citation(TauLeaping(steps=4)).keys
    assert "nucleus" in citation(TauLeaping(steps=4, top_p=0.5)).keys
    assert "token_order" in citation(EventDriven(exact=True, confidence="top_prob")).keys
    assert citation(EventDriven).keys == citation("event").keys


def test_model_brings_method_and_task():
    model = loflexmdm.load("star-tiny")
    assert citation(model).keys == citation("star-tiny").keys == (*LoFlexMDM.papers, "ilm")
    assert citation(task_from(model.task)).keys == ("ilm",)
    assert citation("star-tiny", "star").found["ilm"] == ("task star: the star graphs",)


def test_printed_it_is_bibtex_with_reasons():
    c = citation("flexmdm", "event", "star")
    assert isinstance(c, Citation) and len(c) == len(c.keys)
    assert "% task star: the star graphs" in repr(c) and "Patel et al." in c._repr_markdown_()


def test_runs_can_be_cited_without_their_weights(tmp_path):
    loflexmdm.load("star-tiny").save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    assert citation(tmp_path / "m").keys == citation("star-tiny").keys


@pytest.mark.parametrize("what", ["star-huge", 3, None, object()])
def test_unknown_is_refused(what):
    with pytest.raises(ValueError): citation(what)


@pytest.mark.slow
def test_lazy_and_on_the_command_line(capsys):
    assert loflexmdm.citation is citation and "citation" in dir(loflexmdm)
    assert main(["cite", "brackets"]) == 0 and "nothing to cite" in capsys.readouterr().out
    assert main(["cite", "star-tiny", "tau"]) == 0 and "@article{tau_leaping," in capsys.readouterr().out
    assert main(["cite", "nobody"]) == 2 and capsys.readouterr().err.count("\n") == 1
    assert all(citation(n) is not None for n in known_names())


@pytest.mark.parametrize("settings, papers", [
    (dict(), set()), (dict(source="moses"), {"moses"}), (dict(source="mine.smi", notation="smiles"), set()),
    (dict(source="moses-test", notation="selfies"), {"moses", "selfies"}),
    (dict(source="qm9"), {"qm9"}),
])
def test_molecules_and_notation_are_cited(settings, papers):
    cls = TASKS["molecules"]
    found = set(citation(task_from(dict(kind="molecules", **settings))).found)
    assert found - {"loflexmdm"} == set(cls.papers) | papers


@pytest.mark.parametrize("name", ["moses", "guacamol", "pmo", "graph_ga", "qm9", "selfies"])
def test_papers_of_molecules_by_name(name): assert name in citation(name).bibtex
