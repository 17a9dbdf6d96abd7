// Pages for readers before pages for builders; a page whose title has the word before one that mentions it. The
// reference comes last, and first where a word is a name of the code.
const PLACES = { tutorials: 30, how_to: 30, about: 8, process: 4, api: -10, support: -20, cli: -20 };
const NAME = /[a-z][A-Z]|_|\w\.\w/;
const IS_NAME = (new URLSearchParams(location.search).get("q") || "").split(/\s+/).some((word) => NAME.test(word));
// Words of newcomers, and the page that answers them where its title says it in other words.
const ANSWERS = {
  loss: "process/matching", objective: "process/matching", likelihood: "how_to/report_a_bound",
  scaffold: "tutorials/fragments", smiles: "tutorials/molecules", sample: "how_to/read_samples",
  infill: "how_to/condition_on_a_prompt", infilling: "how_to/condition_on_a_prompt", finetune: "how_to/fine_tune",
  dataset: "tutorials/your_own_data", csv: "how_to/pandas_and_files", checkpoint: "how_to/resume_a_run",
  temperature: "how_to/choose_a_sampler", tune: "how_to/fine_tune", score: "how_to/report_a_bound",
  server: "how_to/run_a_service", serve: "how_to/run_a_service", app: "how_to/run_a_service", docker: "how_to/run_a_service", api: "how_to/run_a_service",
  gradio: "how_to/run_a_service", tensorboard: "how_to/log_and_sweep", wandb: "how_to/log_and_sweep",
  mlflow: "how_to/log_and_sweep", trackio: "how_to/log_and_sweep", sweep: "how_to/log_and_sweep",
  custom: "how_to/add_your_own", plugin: "how_to/add_your_own", kubernetes: "how_to/run_a_service", prometheus: "how_to/run_a_service",
  metrics: "how_to/run_a_service", version: "how_to/versions", versions: "how_to/versions", pin: "how_to/versions",
  deprecated: "how_to/versions", upgrade: "how_to/versions", anomaly: "tutorials/log_anomalies",
  anomalies: "tutorials/log_anomalies", logs: "tutorials/log_anomalies", lesson: "tutorials/lesson",
  rule: "tutorials/rules", rules: "tutorials/rules", constraint: "tutorials/rules", constrained: "tutorials/rules",
  regex: "tutorials/rules", schema: "tutorials/rules", json: "tutorials/rules", grammar: "tutorials/rules",
};
const place = (page) => {
  if (page === "about/checked" || page === "about/changelog") return -20;  // which have every word
  const room = page.split("/")[0];
  return room === "api" && IS_NAME ? 40 : PLACES[room] || 0;
};
const WORDS = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/).filter((w) => w.length > 1);
var Scorer = {
  score: ([page, title, anchor, , score]) => {
    const named = WORDS.filter((w) => title.toLowerCase().includes(w)).length;
    const answers = !anchor && WORDS.some((w) => w.split("-").some((part) => ANSWERS[part] === page)) ? 40 : 0;
    return score + place(page) + 10 * named + (anchor ? 0 : 3) + answers;
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
