// Predicted beside measured.

function reportSection(report, index, all) {
  const format = (unit, value) => (value === null ? "not measured" : unit === "s" ? seconds(value) : unit === "B" ? bytes(value) : number(value));
  const bars = html("div", { class: "bars" });
  for (const row of report.rows) {
    const most = Math.max(row.predicted ?? 0, row.measured ?? 0) || 1;
    const ratio = row.predicted && row.measured !== null ? `, ${number(Number((row.measured / row.predicted).toPrecision(3)))} x` : "";
    bars.append(html("span", { class: "what" }, row.what));
    for (const which of ["predicted", "measured"]) {
      const bar = html("i", { class: which, "aria-hidden": "true" });
      bar.style.width = `${(100 * (row[which] ?? 0)) / most}%`;
      if (row[which] === null) bar.style.visibility = "hidden";
      bars.append(bar, html("span", { class: "value" }, `${which} ${format(row.unit, row[which])}${which === "measured" ? ratio : ""}`));
    }
  }
  const facts = [`${number(report.steps)} steps`, report.budget === null ? "no budget" : `budget ${bytes(report.budget)}`, report.exact ? "exact gradients" : "gradients are NOT exact"];
  const remarks = report.remarks.map((remark) => html("p", { class: "remark" }, String(remark)));
  return section(all > 1 ? `Run ${index + 1}: ${report.strategy}` : report.strategy, facts.join(", "), ...remarks, bars);
}
