// Predicted beside measured, before beside now.

// Two bars for each row; `shared`: all on one scale.
function pairs(rows, words, shared) {
  const format = (unit, value) => (value === null ? "unknown" : formats[unit](value));
  const bars = html("div", { class: "bars" });
  const most = (of) => Math.max(...of.map((row) => Math.max(row.predicted ?? 0, row.measured ?? 0)), 0) || 1;
  const scale = most(rows);
  for (const row of rows) {
    // Beside a ratio another one would be taken for it.
    const ratio = row.predicted && row.measured !== null && row.unit !== "x" ? `, ${number(Number((row.measured / row.predicted).toPrecision(3)))} x` : "";
    bars.append(html("span", { class: "what" }, row.what));
    ["predicted", "measured"].forEach((which, i) => {
      const bar = html("i", { class: which, "aria-hidden": "true" });
      bar.style.width = `${(100 * (row[which] ?? 0)) / (shared ? scale : most([row]))}%`;
      if (row[which] === null) bar.style.visibility = "hidden";
      bars.append(bar, html("span", { class: "value" }, `${words[i]} ${format(row.unit, row[which])}${i === 1 ? ratio : ""}`));
    });
  }
  return bars;
}

function reportSection(report, index, all) {
  const bars = pairs(report.rows, ["predicted", "measured"], false);
  const facts = [count(report.steps, "step"), report.budget === null ? "no budget" : `budget ${bytes(report.budget)}`];
  if (report.exact !== null) facts.push(report.exact ? "exact gradients" : "gradients are NOT exact");
  const remarks = report.remarks.map((remark) => html("p", { class: "remark" }, String(remark)));
  return section(`Predicted and measured: ${all > 1 ? `run ${index + 1}, ` : ""}${report.strategy}`, facts.join(", "), ...remarks, bars);
}
