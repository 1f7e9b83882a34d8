// Curves of a training run.

function trainingSection(own) {
  const lines = own.lines.filter((line) => line.at.length);
  const missing = own.lines.reduce((sum, line) => sum + line.missing, 0);
  const remark = missing ? [html("p", { class: "remark" }, `${count(missing, "value")} ${missing === 1 ? "is" : "are"} not finite and not drawn.`)] : [];
  if (!lines.length) return section(own.title, "", ...remark);
  const ends = lines.flatMap((line) => [line.at[0], line.at[line.at.length - 1]]);
  const values = lines.flatMap((line) => [...line.low, ...line.high]);
  const lo = values.reduce((a, b) => Math.min(a, b), Infinity), hi = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const first = Math.min(0, ...ends), last = Math.max(...ends);
  // Room for the mark of the last one.
  const x = new Range(first, last + (last - first) * 0.02);
  const log = lo > 1e-300 && hi > 50 * lo && hi < 1e300;
  // Differences of rounding alone are a flat line.
  const room = Math.max(hi * 0.06 - lo * 0.06, Math.abs(hi) * 1e-6, 1e-290);
  const y = log ? new Range(lo / 1.2, hi * 1.2, true) : new Range(lo >= 0 && lo < hi / 2 ? 0 : Math.max(lo - room, -Number.MAX_VALUE), Math.min(hi + room, Number.MAX_VALUE));
  const marked = (line) => line.name === "test" || line.at.length < 3;
  const style = (line) => (line.name === "test" ? "line1" : "line0");
  const draw = (layer, sx, sy) => {
    for (const line of lines) {
      const grouped = line.low.some((low, i) => low !== line.high[i]);
      if (grouped) {
        const top = line.at.map((at, i) => `${i ? "L" : "M"}${px(sx(at))} ${px(sy(line.high[i]))}`).join("");
        const bottom = line.at.map((at, i) => `L${px(sx(at))} ${px(sy(line.low[i]))}`).reverse().join("");
        layer.append(svg("path", { class: `${style(line)} range`, d: `${top}${bottom}z`, style: `fill: var(--${style(line)})` }));
      }
      layer.append(svg("path", { class: `${style(line)} stroke`, d: line.at.map((at, i) => `${i ? "L" : "M"}${px(sx(at))} ${px(sy(line.mean[i]))}`).join("") }));
      if (marked(line)) layer.append(svg("path", { class: `${style(line)} mark`, d: line.at.map((at, i) => circlePath(sx(at), sy(line.mean[i]))).join("") }));
    }
  };
  const points = lines.flatMap((line) => line.at.map((at, i) => ({ x: at, y: line.mean[i], text: () => `${line.name}, iteration ${number(at)}: ${number(line.mean[i])}${line.low[i] < line.high[i] ? ` (${number(line.low[i])} to ${number(line.high[i])})` : ""}` })));
  points.sort((a, b) => a.x - b.x);
  return section(own.title, "", ...remark, chart({
    label: own.title, about: "Against iterations.", x, xFormat: number, xLabel: "iteration", y, yFormat: number, height: 260, draw, points,
    legend: legend(lines.map((line) => [signOf(marked(line) ? "marked" : "line", style(line)), line.name])),
    table: () => ({ head: ["", "iteration", "mean", "least", "most"], rows: lines.flatMap((line) => line.at.map((at, i) => [line.name, number(at), number(line.mean[i]), number(line.low[i]), number(line.high[i])])) }),
  }));
}
