// Pages for readers before pages for builders; a page whose title has the word before one that mentions it.
const PLACES = { tutorials: 12, how_to: 12, learn: 6, about: 6, api: 3 };
const place = (page) => (page === "about/checked" ? -8 : PLACES[page.split("/")[0]] || 0);  // which has every word
const WORDS = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/).filter((w) => w.length > 1);
var Scorer = {
  score: ([page, title, anchor, , score]) => {
    const named = WORDS.filter((w) => title.toLowerCase().includes(w)).length;
    return score + place(page) + 10 * named + (anchor ? 0 : 3);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
