// A folded section opens when a link leads to it or into it.
function reveal() {
  const at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!at) return;
  const closed = [...document.querySelectorAll("details.fold:not([open]), details.sd-dropdown:not([open])")];
  const around = closed.filter(d => d.contains(at) || d.parentElement === at);
  around.forEach(d => { d.open = true; });
  if (around.length) at.scrollIntoView();
}

// A table that is wider than its place becomes a block for each row, every value under the head of its column.
function label(table) {
  const heads = [...table.querySelectorAll("thead th")].map(th => th.textContent.trim());
  const roles = {table: [table], rowgroup: table.querySelectorAll("thead, tbody"), row: table.rows,
    columnheader: table.querySelectorAll("th"), cell: table.querySelectorAll("td")};
  for (const [role, found] of Object.entries(roles)) for (const part of found) part.setAttribute("role", role);
  for (const row of table.querySelectorAll("tbody tr"))
    [...row.cells].forEach((cell, i) => { cell.dataset.head = heads[i] || ""; });
}

function fit(table) {
  if (!table.tHead || !table.offsetParent) return;
  table.classList.remove("stacked");
  const place = table.closest(".table-wrapper, .cell_output") || table.parentElement;
  if (table.scrollWidth <= place.clientWidth + 1) return;
  label(table);
  table.classList.add("stacked");
}

// Names in tables may be broken after dots and the like, very long ones after underscores, and nowhere else.
function breakable(code) {
  const parts = code.textContent.split(/(?<=[.\/,=(:+])(?=.)/).flatMap(p => p.length > 22 ? p.split(/(?<=_)/) : [p]);
  if (parts.length > 1) code.replaceChildren(...parts.flatMap((p, i) => i ? [document.createElement("wbr"), p] : [p]));
}

function fitAll(where) { where.querySelectorAll("article table:not(.highlighttable)").forEach(fit); }

document.addEventListener("DOMContentLoaded", () => {
  reveal();
  document.querySelectorAll("article td code .pre, article th code .pre").forEach(breakable);
  fitAll(document);
  const all = document.querySelector(".fold-all");
  if (all) {
    all.hidden = false;
    all.onclick = () => document.querySelectorAll("details.fold").forEach(d => { d.open = true; });
  }
  document.addEventListener("toggle", e => e.target.querySelectorAll?.("table").forEach(fit), true);
});
addEventListener("hashchange", reveal);
addEventListener("load", () => {
  fitAll(document);
  globalThis.MathJax?.startup?.promise?.then(() => fitAll(document));
});
let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => fitAll(document), 150); });
