// What a page shows follows from what its data have: figures, a film, a curve, charts, reports, bars, tables.

const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
document.querySelector("h1").textContent = data.title;
document.querySelector("footer").textContent = `Made by ebb ${data.version}. This file loads nothing from elsewhere.`;

document.body.append(patterns());
for (const remark of data.remarks ?? []) page.append(html("p", { class: "remark" }, remark));
if (data.figures) page.append(html("dl", { class: "figures" }, ...data.figures.flatMap(([label, text]) => [html("dt", {}, label), html("dd", {}, text)])));
if (data.film) page.append(...filmSections(data.film, data.slot));
if (data.curve) page.append(curveSection(data.curve, data.chosen, data.slot));
for (const own of data.charts ?? []) page.append(trainingSection(own));
(data.reports ?? []).forEach((report, i, all) => page.append(reportSection(report, i, all.length)));
if (data.bars) page.append(section(data.bars.title, data.bars.about, pairs(data.bars.rows, data.bars.words, data.bars.shared)));
for (const table of data.tables ?? []) page.append(section(table.title, table.about, dataTable(() => table)));

const theme = document.getElementById("theme");
const setTheme = (dark) => {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  theme.setAttribute("aria-pressed", String(dark));
};
setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
theme.addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
// Paper is white.
let before = false;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme === "dark";
  setTheme(false);
});
addEventListener("afterprint", () => setTheme(before));

const keys = document.getElementById("keys");
keys.addEventListener("click", () => {
  const help = document.getElementById("keys-help");
  help.hidden = !help.hidden;
  keys.setAttribute("aria-expanded", String(!help.hidden));
});
document.documentElement.dataset.ready = "yes";
