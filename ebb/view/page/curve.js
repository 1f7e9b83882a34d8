// Time against budget: one line for each strategy, the bound under them, and the plan of the page.

// `slot`: bytes of one, in the literature's accounting.
function curveSection(curve, chosen, slot) {
  const good = ([budget, time]) => budget >= 0 && time > 0 && Number.isFinite(time);
  const lines = curve.lines.map((line) => ({ ...line, points: line.points.filter(good) })).filter((line) => line.points.length);
  const bound = curve.bound.filter(good);
  const star = chosen && good([chosen.budget, chosen.seconds]) ? chosen : null;
  const all = [...lines.flatMap((line) => line.points), ...bound, ...(star ? [[star.budget, star.seconds]] : [])];
  const budgets = all.map(([budget]) => budget).filter((budget) => budget > 0);
  if (!lines.length || !budgets.length) return section("Time against budget", "There is nothing to compare: no plan takes time and memory.");
  const amount = slot ? slotsOf(slot) : bytes;
  const lo = Math.min(...budgets), hi = Math.max(...budgets);
  const x = new Range(lo / 1.1, Math.max(hi * 1.1, lo * 1.3), true);
  const place = (budget) => Math.max(budget, x.min);
  // Plans of many times the least are named, not drawn: they would flatten the rest.
  const cap = Math.min(...all.map(([, time]) => time)) * 12;
  const low = (time) => time <= cap || time === star?.seconds;
  const above = lines.flatMap((line) => line.points).filter(([, time]) => !low(time)).length;
  const y = new Range(1, 2, true);
  const fit = () => {
    const shown = all.filter(([budget, time]) => low(time) && place(budget) >= x.lo && place(budget) <= x.hi).map(([, time]) => time);
    const times = shown.length ? shown : all.map(([, time]) => time);
    const least = Math.min(...times), most = Math.max(...times);
    const room = Math.max((most / least) ** 0.06, 1.0005);
    return [least / room, most * room];
  };
  const starPath = (a, b) => `M${a} ${b - 9}l2.6 6l6.4 .5l-4.9 4.2l1.5 6.3l-5.6 -3.4l-5.6 3.4l1.5 -6.3l-4.9 -4.2l6.4 -.5z`;
  const path = (points, sx, sy) => points.map(([budget, time], i) => `${i ? "L" : "M"}${px(sx(place(budget)))} ${px(sy(time))}`).join("");
  // What is proven at one budget holds for all below it, so the line goes in steps.
  const steps = (sx, sy) => bound.map(([budget, time], i) => `${i ? `V${px(sy(time))}` : `M${px(sx(place(budget)))} ${px(sy(time))}`}H${px(sx(place(budget)))}`).join("");
  const draw = (layer, sx, sy) => {
    if (bound.length > 1) layer.append(svg("path", { class: "bound stroke", d: steps(sx, sy) }));
    lines.forEach((line, i) => {
      const { line: name, dash, shape } = lineStyle(i);
      layer.append(svg("path", { class: `${name} stroke ${dash}${line.strategy === "auto" ? "" : " thin"}`, d: path(line.points, sx, sy) }));
      layer.append(svg("path", { class: `${name} mark`, d: line.points.map(([budget, time]) => shape(px(sx(place(budget))), px(sy(time)))).join(""), "stroke-width": 1.5 }));
    });
    if (star) layer.append(svg("path", { class: "chosen", d: starPath(px(sx(place(star.budget))), px(sy(star.seconds))) }));
  };
  const points = lines.flatMap((line) => line.points.map(([budget, time]) => ({ x: place(budget), y: time, text: () => `${line.strategy}: ${seconds(time)} in ${amount(budget)}` })));
  points.push(...bound.map(([budget, time]) => ({ x: place(budget), y: time, text: () => `bound: no exact plan takes less than ${seconds(time)} in ${amount(budget)}` })));
  if (star) points.push({ x: place(star.budget), y: star.seconds, text: () => `This plan, ${star.strategy}: ${seconds(star.seconds)} in ${amount(star.budget)}; bound ${seconds(star.bound)}` });
  points.sort((a, b) => a.x - b.x || a.y - b.y);
  const signs = [];
  if (star) signs.push([[svg("path", { class: "chosen", d: starPath(16, 7), transform: "translate(4 2) scale(.75)" })], "this plan"]);
  lines.forEach((line, i) => {
    const { line: name, dash, shape } = lineStyle(i);
    signs.push([[svg("path", { class: `${name} stroke ${dash}`, d: "M0 7h32" }), svg("path", { class: `${name} mark`, d: shape(16, 7) })], line.strategy]);
  });
  if (bound.length > 1) signs.push([signOf("line", "bound"), "bound"]);
  const left = curve.left_out;
  const names = left.length > 6 ? count(left.length, "strategy").replace("strategys", "strategies") : left.join(", ");
  const cut = left.length ? ` There was no time for more plans: ${names} ${left.length === 1 ? "ends" : "end"} closer to this plan, or ${left.length === 1 ? "is" : "are"} left out.` : "";
  const high = above ? ` ${count(above, "point")} of more than ${seconds(cap)} ${above === 1 ? "is" : "are"} above; the data have ${above === 1 ? "it" : "them"}.` : "";
  return section("Time against budget", `How time falls as memory grows. No exact plan lies below the bound. Some lines coincide.${high}${cut}`, chart({
    label: "Time against budget", about: `${count(lines.length, "line")}.`, x, xBase: slot ? 10 : 2, xFormat: amount, xLabel: "budget of fast memory", y, fit, yFormat: seconds, yLabel: "time", height: 380, legend: legend(signs), draw, points,
    table: () => ({ head: ["strategy", "budget", "time"], rows: [...lines.flatMap((line) => line.points.map(([budget, time]) => [line.strategy, amount(budget), seconds(time)])), ...bound.map(([budget, time]) => ["bound", amount(budget), seconds(time)])] }),
  }));
}
