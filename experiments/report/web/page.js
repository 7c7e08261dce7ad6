"use strict";
const chosen = (name) => document.getElementById(name)?.value;
function advise() {
  for (const each of document.querySelectorAll(".advice"))
    each.hidden = each.dataset.length !== chosen("length") || each.dataset.budget !== chosen("budget");
}
for (const name of ["length", "budget"]) document.getElementById(name)?.addEventListener("change", advise);
advise();

const order = (cell) => cell?.dataset.order === undefined ? null : Number(cell.dataset.order);
function compare(one, other, sign) {
  const [a, b] = [order(one), order(other)];
  if (a !== null && b !== null) return sign * (a - b);
  if (a !== null || b !== null) return a === null ? 1 : -1;  // what has no number stays below
  return sign * one.textContent.localeCompare(other.textContent);
}
for (const table of document.querySelectorAll("table.sortable"))
  table.querySelectorAll("thead th").forEach((head, column) => {
    head.querySelector("button")?.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const each of table.querySelectorAll("thead th[aria-sort]")) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => compare(one.cells[column], other.cells[column], up ? 1 : -1));
      table.tBodies[0].append(...rows);
    });
  });

function named(hash) {
  try { return document.getElementById(decodeURIComponent(hash)); } catch { return null; }  // a torn link
}
function open() {  // a run's details, when its link is followed
  const target = location.hash && named(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
addEventListener("hashchange", open);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
open();
