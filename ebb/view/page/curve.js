// Time against budget: one line for each strategy, the bound under them, and the plan of the page.

function curveSection(curve, chosen) {
  const lines = curve.lines.filter((line) => line.points.length);
  if (!lines.length) return section("Time against budget", "No strategy was tried at other budgets.");
  const budgets = [...lines.flatMap((line) => line.points.map((point) => point[0])), ...(chosen ? [chosen.budget] : [])].filter((budget) => budget > 0);
  if (!budgets.length) return section("Time against budget", "Nothing is kept, whatever the budget.");
  const times = [...lines.flatMap((line) => line.points.map((point) => point[1])), ...curve.bound.map((point) => point[1]), ...(chosen ? [chosen.seconds] : [])];
  const lo = Math.min(...budgets), hi = Math.max(...budgets);
  const x = new Range(lo / 1.1, Math.max(hi * 1.1, lo * 1.3), true);
  // Plans of many times the least are named, not drawn: they would flatten the rest.
  const least = Math.min(...times.filter((time) => time > 0));
  const inSight = times.filter((time) => time <= least * 12 || time === chosen?.seconds);
  const most = inSight.length ? Math.max(...inSight) : 0;
  const above = times.length - inSight.length;
  const log = most > least * 4;
  const y = log ? new Range(least / 1.1, most * 1.1, true) : new Range(0, most * 1.1 || 1);
  const shapes = [(a, b) => `M${a - 4} ${b}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z`, (a, b) => `M${a - 4} ${b - 4}h8v8h-8z`, (a, b) => `M${a} ${b - 5}l5 9h-10z`, (a, b) => `M${a} ${b - 5}l5 5l-5 5l-5 -5z`];
  const style = (i) => ({ line: `line${i % 6}`, dash: `dash${Math.floor(i / 2) % 4}`, shape: shapes[i % 4] });
  const path = (points, sx, sy) => points.map(([budget, time], i) => `${i ? "L" : "M"}${px(sx(Math.max(budget, x.min)))} ${px(sy(time))}`).join("");
  const draw = (layer, sx, sy) => {
    if (curve.bound.length > 1) layer.append(svg("path", { class: "bound stroke", d: path(curve.bound, sx, sy) }));
    lines.forEach((line, i) => {
      const { line: name, dash, shape } = style(i);
      layer.append(svg("path", { class: `${name} stroke ${dash}${line.strategy === "auto" ? "" : " thin"}`, d: path(line.points, sx, sy) }));
      layer.append(svg("path", { class: `${name} mark`, d: line.points.map(([budget, time]) => shape(px(sx(Math.max(budget, x.min))), px(sy(time)))).join(""), "stroke-width": 1.5 }));
    });
    if (chosen) {
      const a = px(sx(Math.max(chosen.budget, x.min))), b = px(sy(chosen.seconds));
      layer.append(svg("path", { class: "chosen", d: `M${a} ${b - 9}l2.6 6l6.4 .5l-4.9 4.2l1.5 6.3l-5.6 -3.4l-5.6 3.4l1.5 -6.3l-4.9 -4.2l6.4 -.5z` }));
    }
  };
  const points = lines.flatMap((line) => line.points.map(([budget, time]) => ({ x: Math.max(budget, x.min), y: time, text: () => `${line.strategy}: ${seconds(time)} in ${bytes(budget)}` })));
  points.push(...curve.bound.map(([budget, time]) => ({ x: Math.max(budget, x.min), y: time, text: () => `bound: no exact plan takes less than ${seconds(time)} in ${bytes(budget)}` })));
  if (chosen) points.push({ x: Math.max(chosen.budget, x.min), y: chosen.seconds, text: () => `This plan, ${chosen.strategy}: ${seconds(chosen.seconds)} in ${bytes(chosen.budget)}; bound ${seconds(chosen.bound)}` });
  points.sort((a, b) => a.x - b.x || a.y - b.y);
  const swatches = html("ul", { class: "legend" });
  const entry = (text, ...parts) => swatches.append(html("li", {}, svg("svg", { viewBox: "0 0 32 14", "aria-hidden": "true" }, svg("g", { class: "clip" }, ...parts)), text));
  if (chosen) entry("this plan", svg("path", { class: "chosen", d: "M16 0l2 5l5 .3l-4 3.3l1.3 5l-4.3 -2.8l-4.3 2.8l1.3 -5l-4 -3.3l5 -.3z" }));
  lines.forEach((line, i) => {
    const { line: name, dash, shape } = style(i);
    entry(line.strategy, svg("path", { class: `${name} stroke ${dash}`, d: "M0 7h32" }), svg("path", { class: `${name} mark`, d: shape(16, 7) }));
  });
  if (curve.bound.length > 1) entry("bound", svg("path", { class: "bound stroke", d: "M0 7h32" }));
  const names = curve.left_out.length > 6 ? `${curve.left_out.length} strategies` : curve.left_out.join(", ");
  const left = curve.left_out.length ? ` Planning this chain takes long: ${names} are left out or have fewer points.` : "";
  return section("Time against budget", `How the time falls with the memory. No exact plan lies below the bound; some lines fall on one another.${above && inSight.length ? ` ${number(above)} points of more than ${seconds(least * 12)} are above; the data have them.` : ""}${left}`, chart({
    label: "Time against budget", about: `${lines.length} strategies.`, x, xBase: 2, xFormat: bytes, xLabel: "budget of fast memory", y, yFormat: seconds, yLabel: "time", height: 380, legend: swatches, draw, points,
    table: () => ({ head: ["strategy", "budget", "time"], rows: [...lines.flatMap((line) => line.points.map(([budget, time]) => [line.strategy, bytes(budget), seconds(time)])), ...curve.bound.map(([budget, time]) => ["bound", bytes(budget), seconds(time)])] }),
  }));
}
