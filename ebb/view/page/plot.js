// What an experiment found: lines of points, each predicted and measured.

// {title, about, x: {label, unit}, y: {label, unit}, lines: [{name, style, points: [{x, predicted, measured, note}]}], levels: [{name, y}]}
function plotSection(own) {
  // Axes are divided and multiplied: not up to the ends of what a number can be.
  const good = (y) => y !== null && y > 1e-300 && y < 1e300;
  const placed = (x) => x !== null && Math.abs(x) < 1e300;
  const both = ["predicted", "measured"];
  const lines = own.lines.map((line) => ({ ...line, points: line.points.filter((point) => placed(point.x) && both.some((which) => good(point[which]))) })).filter((line) => line.points.length);
  if (!lines.length) return section(own.title, [own.about, "There is nothing to draw: no run was timed."].filter(Boolean).join(" "));
  const all = lines.flatMap((line) => line.points);
  const [lo, hi] = [Math.min(...all.map((point) => point.x)), Math.max(...all.map((point) => point.x))];
  const log = lo > 1e-300 && hi > 5 * lo;
  // A single place stands in the middle.
  const room = hi > lo ? (hi - lo) * 0.04 : Math.abs(hi) / 2 || 1;
  const x = log ? new Range(lo / 1.15, hi * 1.15, true) : new Range(lo >= 0 ? Math.max(0, lo - room) : lo - room, hi + room);
  const y = new Range(1, 2, true);
  const fit = () => {
    const shown = all.filter((point) => point.x >= x.lo && point.x <= x.hi);
    const times = (shown.length ? shown : all).flatMap((point) => both.map((which) => point[which])).filter(good);
    times.push(...own.levels.map((level) => level.y).filter(good));
    const [least, most] = [Math.min(...times), Math.max(...times)];
    const space = Math.max((most / least) ** 0.06, 1.01);
    return [least / space, most * space];
  };
  const [across, up] = [formats[own.x.unit], formats[own.y.unit]];
  const path = (points, which, sx, sy) => points.map((point, i) => `${i ? "L" : "M"}${px(sx(point.x))} ${px(sy(point[which]))}`).join("");
  const drawOne = (layer, line, which, sx, sy) => {
    const points = line.points.filter((point) => good(point[which]));
    const { line: name, shape } = lineStyle(line.style);
    const measured = which === "measured";
    layer.append(svg("path", { class: `${name} stroke${measured ? "" : " dash1 thin"}`, d: path(points, which, sx, sy) }));
    const d = points.map((point) => shape(px(sx(point.x)), px(sy(point[which])))).join("");
    layer.append(svg("path", { class: `${name} mark`, d, "stroke-width": 1.5, ...(measured ? { style: `fill: var(--${name})` } : {}) }));
  };
  const draw = (layer, sx, sy, { left, w }) => {
    for (const level of own.levels.filter((one) => good(one.y))) layer.append(svg("path", { class: "bound stroke", d: `M${left} ${px(sy(level.y))}h${w}` }));
    for (const which of both) for (const line of lines) drawOne(layer, line, which, sx, sy);
  };
  const ratio = (point) => (good(point.predicted) && good(point.measured) ? `, ${number(Number((point.measured / point.predicted).toPrecision(3)))} of predicted` : "");
  const said = (point) => both.filter((which) => good(point[which])).map((which) => `${which} ${up(point[which])}`).join(", ") + ratio(point);
  const points = lines.flatMap((line) => line.points.map((point) => ({ x: point.x, y: good(point.measured) ? point.measured : point.predicted, text: () => `${line.name}, ${own.x.label} ${across(point.x)}: ${said(point)}${point.note ? `; ${point.note}` : ""}` })));
  points.sort((a, b) => a.x - b.x || a.y - b.y);
  return section(own.title, own.about, chart({
    label: own.title, about: `${count(lines.length, "line")}.`, x, xBase: own.x.unit === "B" ? 2 : 10, xFormat: across, xLabel: own.x.label, y, fit, yFormat: up, yLabel: own.y.label, height: 320, draw, points,
    legend: plotLegend(lines, own.levels, both.filter((which) => all.some((point) => good(point[which])))),
    table: () => ({
      head: ["", own.x.label, ...both, "measured / predicted", ""],
      rows: lines.flatMap((line) => line.points.map((point) => [line.name, across(point.x), ...both.map((which) => up(point[which])), good(point.predicted) && good(point.measured) ? number(Number((point.measured / point.predicted).toPrecision(4))) : "–", point.note])),
    }),
  }));
}

// Lines by their marks; then what is full and what is not, in no line's colour.
function plotLegend(lines, levels, kinds) {
  const entries = lines.map((line) => {
    const { line: name, shape } = lineStyle(line.style);
    return swatch(line.name, svg("path", { class: `${name} stroke`, d: "M0 7h32" }), svg("path", { class: `${name} mark`, d: shape(16, 7), style: `fill: var(--${name})` }));
  });
  for (const kind of kinds) {
    const measured = kind === "measured";
    entries.push(swatch(kind, svg("path", { class: `wait${measured ? "" : " dash1 thin"}`, d: "M0 7h32" }), svg("path", { class: "wait mark", d: lineShapes[0](16, 7), ...(measured ? { style: "fill: var(--wait)" } : {}) })));
  }
  for (const level of levels) entries.push(swatch(level.name, svg("path", { class: "bound stroke", d: "M0 7h32" })));
  return html("ul", { class: "legend" }, ...entries);
}
