"""What a model of edits makes of leads that it was not trained on.

`python experiments/lead_edit_runs.py MODEL LEADS.smi`
`python experiments/lead_edit_runs.py MODEL experiments/ten_drugs.csv -n 10 --each`

Eight attempts at each of some leads of the file, as `loflexmdm edit` makes them. Of all attempts, the share that is
valid and changed; of these, gains and losses against the lead as the model could write it, structural alerts that the
lead lacks, and whether a core with one open bond is shared with the lead, with and without its stereochemistry.
`--each` adds how many attempts at each lead are valid and changed. The figures go to
experiments/results/edit_runs.json."""
import argparse
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean

import torch

from loflexmdm import load
from loflexmdm.molecules.data.cleaning import standardise
from loflexmdm.molecules.data.matched_pairs import single_cuts
from loflexmdm.molecules.data.records import molecule_records, smiles_in
from loflexmdm.molecules.edit_task import SIMILAR, Edited, judge_edits
from loflexmdm.molecules.scores.alerts import alerts
from loflexmdm.models.model import Model
from loflexmdm.tasks.base import Task, task_from
from rdkit import Chem, RDLogger
from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "edit_runs.json"
ATTEMPTS, CATALOGUES = 8, ("BRENK", "PAINS")


def chosen_leads(path: Path, n: int) -> list[str]:
    "Canonical SMILES of `n` molecules at equal distances, of salts the largest part."
    mols = [standardise(Chem.MolFromSmiles(s), "largest")[0] for s in smiles_in(molecule_records(path))]
    return [Chem.MolToSmiles(mol) for mol in mols[:: max(1, len(mols) // n)][:n]]


def without_stereo(smiles: str) -> str:
    "Canonical SMILES without stereochemistry."
    mol = Chem.MolFromSmiles(smiles)
    Chem.RemoveStereochemistry(mol)
    return Chem.MolToSmiles(mol)


@cache
def cores(smiles: str, flat: bool = False) -> frozenset[str]:
    "The larger part of each cut, with a third of the atoms at most gone; flat: without stereochemistry."
    larger = {core for core, piece in single_cuts(smiles) if len(core) > len(piece)}
    whole = smiles.replace("[H]", "")  # a hydrogen may be what was exchanged
    return frozenset(map(without_stereo, larger | {whole}) if flat else larger | {whole})


def same_core(e: Edited, flat: bool) -> bool:
    "Whether lead and product share a core; `flat`: stereochemistry aside."
    return bool(cores(e.lead, flat) & cores(e.smiles, flat))


def adds_alert(e: Edited) -> bool:
    "Whether the product has an alert that the lead has not."
    return not {*alerts(e.smiles, CATALOGUES)} <= {*alerts(e.lead, CATALOGUES)}


def edited(task: Task, model: Model, leads: Sequence[str], seed: int,
           **options) -> tuple[list[str], list[Edited], int]:
    "Of the leads that the model can take: each as it writes it, all attempts at them, and the network calls."
    taken, tokens = [], []
    for lead in leads:
        try: spelled = [task.edits.source(lead, k) for k in range(ATTEMPTS)]
        except ValueError: continue
        if max(map(len, spelled)) >= model.method.config.max_length: continue
        taken.append(lead)
        tokens += spelled
    samples = model.edit(tokens, generator=torch.Generator().manual_seed(seed),
                          sampler=replace(model.method.default_sampler, **options))
    written = [Chem.CanonSmiles("".join(t)) for t in tokens]
    return taken, judge_edits(written, task.products(samples)), samples.network_calls


def figures(found: Sequence[Edited]) -> dict:
    "Shares and means of attempts."
    changed = [e for e in found if e.state == "valid"]
    average = lambda f: round(mean(map(f, changed)), 4) if changed else math.nan
    in_three = [e for e in changed if same_core(e, True)]
    chiral = [e for e in in_three if e.lead != without_stereo(e.lead)]
    by_lead: dict[str, list[Edited]] = {e.lead: [] for e in found}
    for e in changed: by_lead[e.lead].append(e)
    good = lambda e: e.similarity >= SIMILAR and e.qed_gain >= 0.05
    states = {s: sum(e.state == s for e in found) for s in sorted({e.state for e in found})}
    return dict(
        attempts=len(found), changed=round(len(changed) / len(found), 4),
        qed_gain=average(lambda e: e.qed_gain), sa_loss=average(lambda e: -e.sa_gain),
        similarity=average(lambda e: e.similarity), scaffold_kept=average(lambda e: float(e.scaffold_kept)),
        adds_alert=average(adds_alert), core_kept=round(len(in_three) / max(1, len(changed)), 4),
        stereo_kept=[sum(same_core(e, False) for e in chiral), len(chiral)],
        success=round(sum(map(good, changed)) / len(found), 4),
        reached=round(mean(any(map(good, tries)) for tries in by_lead.values()), 4), states=states,
    )


def changed_of_each(found: Sequence[Edited]) -> dict[str, int]:
    "Return the number of valid and changed attempts at each lead."
    changed = Counter(e.lead for e in found if e.state == "valid")
    return {e.lead: changed[e.lead] for e in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a packaged or saved model")
    parser.add_argument("leads", type=Path)
    parser.add_argument("--name", help="of the row [the model's]")
    parser.add_argument("-n", type=int, default=50, help="how many leads [50]")
    parser.add_argument("--top-p", type=float, nargs="+", default=[0.7])
    parser.add_argument("--exact", action="store_true", help="thinning, in place of intensities that are held")
    parser.add_argument("--each", action="store_true", help="with a count for each lead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-taken-by", metavar="MODEL", help="leads that this model can take as they are")
    args = parser.parse_args()
    torch.set_num_threads(1)
    RDLogger.DisableLog("rdApp.*")
    model = load(args.model)
    task, leads = task_from(model.method.task), chosen_leads(args.leads, args.n)
    if args.only_taken_by:
        other = task_from(load(args.only_taken_by).method.task)
        leads = [s for s in leads if other._is_known(s)]
    for top_p in args.top_p:
        start = time.process_time()
        # only thinning can be exact or held
        how = dict(exact=args.exact or None) if hasattr(model.method.default_sampler, "exact") else {}
        taken, found, calls = edited(task, model, leads, args.seed, top_p=top_p, **how)
        row = dict(name=f"leads {args.name or args.model} {args.leads.stem} {top_p} {args.seed}"
                   + " plain" * bool(args.only_taken_by) + " exact" * args.exact, leads=len(leads), taken=len(taken),
                   stripped=sum(bool(task.omissions(s)) for s in taken), top_p=top_p, exact=args.exact, seed=args.seed)
        took = dict(network_calls=calls, cpu_seconds=round(time.process_time() - start, 1))
        each = dict(changed_of_each=changed_of_each(found)) if args.each else {}
        note(RESULTS, row | figures(found) | each | took)


if __name__ == "__main__": main()
