// What a page shows follows from what its data have: figures, a film, a curve, charts, plots, reports, bars, tables, and parts that have
// such data themselves.

const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
document.querySelector("h1").textContent = data.title;
document.querySelector("footer").textContent = `Made by ebb ${data.version}. This file loads nothing from elsewhere.`;

document.body.append(patterns());

function contents(of) {
  const found = (of.remarks ?? []).map((remark) => html("p", { class: "remark" }, remark));
  if (of.figures) found.push(html("dl", { class: "figures" }, ...of.figures.flatMap(([label, text]) => [html("dt", {}, label), html("dd", {}, text)])));
  if (of.film) found.push(...filmSections(of.film, of.slot));
  if (of.curve) found.push(curveSection(of.curve, of.chosen, of.slot));
  for (const own of of.charts ?? []) found.push(trainingSection(own));
  for (const own of of.plots ?? []) found.push(plotSection(own));
  (of.reports ?? []).forEach((report, i, all) => found.push(reportSection(report, i, all.length)));
  if (of.bars) found.push(section(of.bars.title, of.bars.about, pairs(of.bars.rows, of.bars.words, of.bars.shared)));
  for (const table of of.tables ?? []) found.push(section(table.title, table.about, dataTable(() => table)));
  for (const part of of.parts ?? []) found.push(...contents(part));
  return found;
}
page.append(...contents(data));

const theme = document.getElementById("theme");
const setTheme = (dark) => {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  theme.setAttribute("aria-pressed", String(dark));
};
const system = matchMedia("(prefers-color-scheme: dark)");
const follow = () => setTheme(system.matches);
follow();
system.addEventListener("change", follow);
theme.addEventListener("click", () => {
  system.removeEventListener("change", follow);
  setTheme(document.documentElement.dataset.theme !== "dark");
});
// Paper is white, and about this wide.
const paperWidth = 640;
let before = false;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme === "dark";
  setTheme(false);
  drawAll(paperWidth);
});
addEventListener("afterprint", () => {
  setTheme(before);
  drawAll();
});

// The address stays as it is: it says what the explorer shows.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  page.focus();
});

const keys = document.getElementById("keys");
keys.addEventListener("click", () => {
  const help = document.getElementById("keys-help");
  help.hidden = !help.hidden;
  keys.setAttribute("aria-expanded", String(!help.hidden));
});
document.documentElement.dataset.ready = "yes";
