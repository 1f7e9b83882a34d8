// A chart: axes, zoom, a cursor for mouse and keyboard, and its data as a table. What is drawn in it is the caller's.

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The part of an axis that is shown; charts that share one zoom together.
class Range {
  constructor(min, max, log = false) {
    this.min = min;
    this.max = max > min ? max : min + 1;
    this.log = log;
    this.listeners = [];
    [this.lo, this.hi] = [this.min, this.max];
  }

  share(x) {
    // Halves: the largest numbers are further apart than any number says.
    return this.log ? Math.log(x / this.lo) / Math.log(this.hi / this.lo) : (x / 2 - this.lo / 2) / (this.hi / 2 - this.lo / 2);
  }

  at(share) {
    return this.log ? this.lo * (this.hi / this.lo) ** share : this.lo + share * (this.hi - this.lo);
  }

  // Shows the part between two shares of what is shown now.
  show(from, to) {
    let [lo, hi] = [this.at(from), this.at(to)];
    const least = this.log ? 1.001 : (this.max - this.min) * 1e-6;
    if (this.log ? hi / lo < least : hi - lo < least) return;
    if (to - from >= 1) {
      // Moving along or out stops at the ends.
      const wanted = this.log ? hi / lo : hi - lo;
      const grow = (x, by) => (this.log ? x * by : x + by);
      const shrink = (x, by) => (this.log ? x / by : x - by);
      if (lo < this.min) [lo, hi] = [this.min, grow(this.min, wanted)];
      if (hi > this.max) [lo, hi] = [shrink(this.max, wanted), this.max];
    }
    this.lo = Math.max(this.min, lo);
    this.hi = Math.min(this.max, hi);
    for (const listener of this.listeners) listener();
  }

  showAll() {
    [this.lo, this.hi] = [this.min, this.max];
    for (const listener of this.listeners) listener();
  }

  isAll() {
    return this.lo <= this.min && this.hi >= this.max;
  }
}

// Paths of numbers with one digit after the point: short, and fine enough.
const px = (x) => Math.round(x * 10) / 10;

function dataTable(table) {
  const { head, rows } = table();
  const most = 2000;
  // Columns without a number stand to the left, as words do.
  const words = head.map((_, i) => rows.every((row) => !/\d/.test(row[i])));
  const cells = (name, row, more = {}) => row.map((cell, i) => html(name, words[i] ? { ...more, class: "words" } : more, cell));
  const body = rows.slice(0, most).map((row) => html("tr", {}, ...cells("td", row)));
  const all = [html("table", {}, html("thead", {}, html("tr", {}, ...cells("th", head, { scope: "col" }))), html("tbody", {}, ...body))];
  if (rows.length > most) all.push(html("p", {}, `${count(rows.length - most, "more row")} not listed.`));
  return html("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Data" }, ...all);
}

let charts = 0;
let paper = null;  // the width that charts are drawn for, where it is not the screen's
const widens = new WeakMap();  // by a chart's figure: draws it again if its width is another

// {label, about, x: Range, xFormat(value, digits), y: [lo, hi] or a Range, yFormat, yLabel, xLabel, height, binary: ticks of bytes, legend,
//  fit(x): y's range for the part of x that is shown, draw(layer, sx, sy), points: [{x, y, text}] in the order of x, table(): {head, rows}}
function chart(options) {
  const id = `clip${++charts}`;
  const x = options.x;
  const y = options.y instanceof Range ? options.y : new Range(options.y[0], options.y[1]);
  const points = options.points;
  const picture = svg("svg", { tabindex: "0", role: "application", "aria-roledescription": "chart", "aria-label": `${options.label}. ${options.about ?? ""} Arrow keys read points, plus and minus zoom, 0 shows all.` });
  const output = html("output", { "aria-live": "polite" });
  const buttons = [["+", "Zoom in"], ["−", "Zoom out"], ["All", "Show all"]].map(([text, name]) => html("button", { type: "button", "aria-label": `${name}: ${options.label}` }, text));
  const bar = html("div", { class: "bar" }, options.legend ?? html("span"), html("div", { class: "zoom" }, ...buttons));
  const figure = html("figure", {}, bar, picture, output);
  if (options.table) {
    const details = html("details", {}, html("summary", {}, "Data"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(dataTable(options.table));
    });
    figure.append(details);
  }
  const margin = { left: 68, right: 14, top: 22, bottom: 40 };
  let width = 900, current = -1, drag = null, drawn = false;
  const height = options.height ?? 280;
  const inner = () => ({ w: width - margin.left - margin.right, h: height - margin.top - margin.bottom });
  const sx = (value) => margin.left + x.share(value) * inner().w;
  const sy = (value) => margin.top + (1 - y.share(value)) * inner().h;
  const overlay = svg("g");

  function axes() {
    const { w, h } = inner();
    const layer = svg("g", { "aria-hidden": "true" });
    if (options.fit) [y.lo, y.hi] = options.fit(x);
    const across = x.log ? logTicks(x.lo, x.hi, options.xBase ?? 10, Math.max(2, Math.floor(w / 90))) : ticks(x.lo, x.hi, Math.max(2, Math.floor(w / 110)), options.xBinary);
    const acrossTexts = labels(across, options.xFormat);
    across.forEach((tick, i) => {
      const at = px(sx(tick));
      layer.append(svg("path", { class: "grid", d: `M${at} ${margin.top}v${h}` }));
      layer.append(svg("text", { x: at, y: height - 22, "text-anchor": at > width - margin.right - 24 ? "end" : "middle" }, acrossTexts[i]));
    });
    const up = y.log ? logTicks(y.lo, y.hi, 10, Math.max(2, Math.floor(h / 46))) : ticks(y.lo, y.hi, Math.max(2, Math.floor(h / 46)), options.binary);
    (options.rows ?? []).forEach((name, i) => {
      const shown = name.length > 16 ? `${name.slice(0, 15)}…` : name;
      layer.append(svg("text", { x: margin.left - 6, y: px(sy(options.rows.length - i - 0.5)) + 4, "text-anchor": "end" }, shown));
    });
    const upTexts = labels(up, options.yFormat);
    (options.rows ? [] : up).forEach((tick, i) => {
      const at = px(sy(tick));
      layer.append(svg("path", { class: "grid", d: `M${margin.left} ${at}h${w}` }));
      layer.append(svg("text", { x: margin.left - 6, y: at + 4, "text-anchor": "end" }, upTexts[i]));
    });
    layer.append(svg("path", { class: "axis", d: `M${margin.left} ${margin.top}v${h}h${w}` }));
    layer.append(svg("text", { x: margin.left + w / 2, y: height - 5, "text-anchor": "middle" }, options.xLabel));
    if (options.yLabel) layer.append(svg("text", { x: margin.left, y: 12, "text-anchor": "middle" }, options.yLabel));
    return layer;
  }

  function mark() {
    overlay.replaceChildren();
    const { h } = inner();
    if (drag) overlay.append(svg("rect", { class: "drag", x: Math.min(drag.from, drag.to), y: margin.top, width: Math.abs(drag.to - drag.from), height: h }));
    const point = points[current];
    if (!point || point.x < x.lo || point.x > x.hi) return;
    overlay.append(svg("path", { class: "cursor", d: `M${px(sx(point.x))} ${margin.top}v${h}` }));
    overlay.append(svg("circle", { class: "dot", cx: px(sx(point.x)), cy: px(Math.max(margin.top, Math.min(margin.top + h, sy(point.y)))), r: 4 }));
  }

  function draw() {
    drawn = true;
    const { w, h } = inner();
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const clip = svg("clipPath", { id }, svg("rect", { x: margin.left, y: margin.top - 6, width: w, height: h + 14 }));
    const layer = svg("g", { class: "clip", "clip-path": `url(#${id})` });
    const frame = axes();
    options.draw(layer, sx, sy, { left: margin.left, w, h, top: margin.top });
    picture.replaceChildren(svg("defs", {}, clip), frame, layer, overlay);
    mark();
    buttons[2].setAttribute("aria-disabled", String(x.isAll()));
  }

  function select(index) {
    current = Math.max(0, Math.min(points.length - 1, index));
    const point = points[current];
    if (!point) return;
    output.textContent = point.text();
    if (point.x < x.lo || point.x > x.hi) {
      const share = x.share(point.x);
      x.show(share - 0.5, share + 0.5);
    }
    mark();
  }

  function zoom(by, around = 0.5) {
    const point = points[current];
    const share = point && point.x >= x.lo && point.x <= x.hi ? x.share(point.x) : around;
    x.show(share - share * by, share + (1 - share) * by);
  }

  // Of the points in sight the one nearest on the screen; what is beside counts more than what is above.
  function nearest(px0, py0) {
    let best = -1, least = Infinity;
    for (let i = 0; i < points.length; ++i) {
      const point = points[i];
      const from = sx(point.x), to = point.to === undefined ? from : sx(point.to);
      if (to < margin.left || from > width - margin.right) continue;
      const dx = px0 < from ? from - px0 : px0 > to ? px0 - to : 0;
      const distance = dx * 2 + Math.abs(sy(point.y) - py0) * 0.5;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  function read(px0, py0) {
    const found = nearest(px0, py0);
    if (found < 0) return;
    current = found;
    output.textContent = points[found].text();
    mark();
  }

  const place = (event) => {
    const box = picture.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
  };
  const shareAt = (at) => Math.max(0, Math.min(1, (at - margin.left) / inner().w));

  picture.addEventListener("pointermove", (event) => {
    const [px0, py0] = place(event);
    if (drag) {
      drag.to = Math.max(margin.left, Math.min(width - margin.right, px0));
      mark();
      return;
    }
    read(px0, py0);
  });
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [px0, py0] = place(event);
    if (event.pointerType === "touch") {
      read(px0, py0);
      return;
    }
    const from = Math.max(margin.left, Math.min(width - margin.right, px0));
    drag = { from, to: from };
    picture.setPointerCapture(event.pointerId);
  });
  const end = () => {
    if (!drag) return;
    const [from, to] = [shareAt(Math.min(drag.from, drag.to)), shareAt(Math.max(drag.from, drag.to))];
    const far = Math.abs(drag.to - drag.from) > 6;
    drag = null;
    if (far) x.show(from, to);
    mark();
  };
  picture.addEventListener("pointerup", end);
  picture.addEventListener("pointercancel", () => {
    drag = null;
    mark();
  });
  picture.addEventListener("dblclick", () => x.showAll());
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const share = shareAt(place(event)[0]), by = event.deltaY > 0 ? 1.25 : 0.8;
    x.show(share - share * by, share + (1 - share) * by);
  }, { passive: false });
  picture.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      ArrowLeft: () => (event.shiftKey ? x.show(-0.2, 0.8) : select(current < 0 ? 0 : current - 1)),
      ArrowRight: () => (event.shiftKey ? x.show(0.2, 1.2) : select(current + 1)),
      Home: () => select(0),
      End: () => select(points.length - 1),
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      0: () => x.showAll(),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  buttons[0].addEventListener("click", () => zoom(0.5));
  buttons[1].addEventListener("click", () => zoom(2));
  buttons[2].addEventListener("click", () => x.showAll());
  x.listeners.push(() => drawn && draw());
  const widen = () => {
    const now = Math.max(280, Math.round(paper ?? (picture.clientWidth || width)));
    if (now === width && drawn) return;
    width = now;
    margin.left = options.rows ? Math.min(110, width / 4) : width < 500 ? 60 : 68;
    draw();
  };
  new ResizeObserver(widen).observe(figure);
  widens.set(figure, widen);
  return figure;
}

// Draws all charts for paper of so many pixels; without a width, for the screen.
function drawAll(width = null) {
  paper = width;
  for (const figure of document.querySelectorAll("figure")) widens.get(figure)();
}

const circlePath = (x, y) => `M${px(x - 4)} ${px(y)}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z`;

const lineShapes = [circlePath, (a, b) => `M${a - 4} ${b - 4}h8v8h-8z`, (a, b) => `M${a} ${b - 5}l5 9h-10z`, (a, b) => `M${a} ${b - 5}l5 5l-5 5l-5 -5z`];

// How one line of several is told apart, also without its colour.
const lineStyle = (i) => ({ line: `line${i % 6}`, dash: `dash${Math.floor(i / 2) % 4}`, shape: lineShapes[i % 4] });

const swatch = (text, ...parts) => html("li", {}, svg("svg", { viewBox: "0 0 32 14", "aria-hidden": "true" }, svg("g", { class: "clip" }, ...parts)), text);

// What stands for a class of paths in a legend, about (16, 7).
function signOf(kind, name) {
  const line = () => svg("path", { class: `${name} stroke`, d: "M1 7h30" });
  const signs = {
    line: () => [line()],
    fill: () => [svg("path", { class: `${name} fill`, d: "M1 2h30v10h-30z" })],
    marked: () => [line(), svg("path", { class: `${name} mark`, d: circlePath(16, 7) })],
  };
  return signs[kind]();
}

// [[elements of a sign, text]]
function legend(entries) {
  return html("ul", { class: "legend" }, ...entries.map(([sign, text]) => swatch(text, ...sign)));
}

function section(title, about, ...children) {
  return html("section", {}, html("h2", {}, title), ...(about ? [html("p", { class: "about" }, about)] : []), ...children);
}

// Fills that are told apart without their colours; for all charts of the page.
function patterns() {
  const pattern = (id, name, d, size) => svg("pattern", { id, width: size, height: size, patternUnits: "userSpaceOnUse" }, svg("rect", { class: `${name} ground`, width: size, height: size }), svg("path", { class: name, d }));
  const hatch = svg("pattern", { id: "fill-wait", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("path", { class: "wait", d: "M0 0v6", "stroke-width": 2 }));
  return svg("svg", { width: 0, height: 0, "aria-hidden": "true", style: "position: absolute" }, svg("defs", {}, hatch, pattern("fill-record", "record", "M2 0v6", 6), pattern("fill-reverse", "reverse", "M0 2h6", 6)));
}
