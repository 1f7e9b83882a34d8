// What happened when: the schedule, the lanes of compute and transfers, the memory of each place.

const workNames = { advance: "forward", record: "forward, leaving tapes", reverse: "backward", recover: "forward again after a failure", wait: "waiting for transfers" };
const workPast = { advance: "Ran forward", record: "Ran forward and left tapes of", reverse: "Went backward through", recover: "Ran again", wait: "Waited for transfers" };

// More marks of saves and loads than this hide what they stand on.
const mostMarks = 250;

// Squares are saves and triangles loads: hollow for fast memory, filled for the first slow tier, with bars under them for others.
const markShapes = {
  write: (x, y) => `M${px(x - 4)} ${px(y - 4)}h8v8h-8z`,
  read: (x, y) => `M${px(x)} ${px(y - 5)}l5 9h-10z`,
};
const mostBars = 2;

class Marks {
  constructor(film) {
    const groups = new Map();
    for (const lane of film.lanes) {
      for (const piece of lane.pieces) {
        const key = `${piece.out ? "write" : "read"} ${lane.place}`;
        if (!groups.has(key)) groups.set(key, { style: piece.out ? "write" : "read", place: lane.place, all: [] });
        groups.get(key).all.push({ at: piece.out ? piece.start : piece.end, step: piece.step });
      }
    }
    this.groups = [...groups.values()];
    const tiers = [...new Set(film.lanes.map((lane) => lane.place))].filter((place) => place !== "fast");
    for (const group of this.groups) group.tier = tiers.indexOf(group.place);
  }

  signs({ style, tier }, places) {
    const shapes = places.map(([x, y]) => markShapes[style](x, y));
    const own = [svg("path", { class: tier < 0 ? style : `${style} solid`, d: shapes.join(""), "stroke-width": 1.5 })];
    for (let i = 0; i < tier % (mostBars + 1); ++i) {
      own.push(svg("path", { class: `${style} bar`, d: places.map(([x, y]) => `M${px(x - 5)} ${px(y + 7 + 3 * i)}h10`).join(""), "stroke-width": 1.5 }));
    }
    return own;
  }

  // Where there are too many, every second, fourth … of each kind, so that zooming in only adds marks.
  draw(layer, range, sx, sy) {
    const inSight = (mark) => mark.at >= range.lo && mark.at <= range.hi;
    const counts = this.groups.map((group) => group.all.filter(inSight).length);
    const few = counts.reduce((sum, n) => sum + n, 0) <= mostMarks;
    this.groups.forEach((group, i) => {
      const stride = few ? 1 : 2 ** Math.max(0, Math.ceil(Math.log2((counts[i] * this.groups.length) / mostMarks)));
      const drawn = group.all.filter((mark, k) => k % stride === 0 && inSight(mark));
      if (drawn.length) layer.append(...this.signs(group, drawn.map((mark) => [sx(mark.at), sy(mark.step)])));
    });
  }

  legend() {
    const text = ({ style, place }) => `${style === "write" ? "save to" : "load from"} ${place === "fast" ? "fast memory" : place}`;
    return this.groups.map((group) => [this.signs(group, [[16, 7]]), text(group)]);
  }
}

class Film {
  constructor(data) {
    this.data = data;
    this.spans = data.spans > 0;
    this.range = new Range(0, data.seconds > 0 ? data.seconds : 1);
    const work = data.work;
    this.pieces = work.kind.map((kind, i) => ({ kind: data.kinds[kind], start: this.time(work.start[i]), end: this.time(work.end[i]), from: work.from[i], to: work.to[i], busy: this.spans ? work.busy[i] / 1000 : 1 }));
    this.lanes = data.lanes.map((lane) => ({ name: lane.name, place: lane.name.replace(/ (writes|reads|transfers)$/, ""), pieces: lane.start.map((start, i) => ({
      start: this.time(start), end: this.time(lane.end[i]), step: lane.step?.[i], bytes: lane.bytes?.[i], out: lane.out?.[i] === 1,
      tape: lane.tape?.[i] === 1, busy: this.spans ? lane.busy[i] / 1000 : 1, count: lane.count?.[i] })) }));
  }

  time(tick) {
    return (tick / 1e9) * this.data.seconds;
  }

  // A time, with digits that matter at this zoom.
  at(time) {
    return seconds(time, digitsFor(this.range.max, (this.range.hi - this.range.lo) / 1000));
  }

  has(kind) {
    return this.pieces.some((piece) => piece.kind === kind);
  }

  text(piece) {
    const when = `${this.at(piece.start)} to ${this.at(piece.end)}`;
    const steps = piece.to - piece.from === 1 ? `step ${number(piece.from)}` : `steps ${number(piece.from)} to ${number(piece.to - 1)}`;
    if (this.spans) return `${workNames[piece.kind]}, ${Math.round(piece.busy * 100)} % of the time, ${when}${piece.kind === "wait" ? "" : `, among ${steps}`}`;
    return piece.kind === "wait" ? `${workPast.wait}, ${when}` : `${workPast[piece.kind]} ${steps}, ${when}`;
  }

  moveText(lane, piece) {
    const when = piece.end > piece.start ? `${this.at(piece.start)} to ${this.at(piece.end)}` : `at ${this.at(piece.start)}`;
    if (this.spans) return `${lane.name}: ${count(piece.count, "transfer")}, busy ${Math.round(piece.busy * 100)} % of the time, ${when}`;
    return `${piece.out ? "Saved" : "Loaded"} the ${piece.tape ? "tape of step" : "state before step"} ${number(piece.step)} ${piece.out ? "to" : "from"} ${lane.place === "fast" ? "fast memory" : lane.place}, ${bytes(piece.bytes)}, ${when}`;
  }

  note() {
    const moves = this.lanes.reduce((sum, lane) => sum + lane.pieces.length, 0);
    if (!this.spans && moves > mostMarks) return ` Of ${number(moves)} saves and loads, only some are marked; zoom in to see the others.`;
    return this.spans ? ` There are too many actions to draw one by one: time is cut into ${number(this.data.spans)} spans, and each shows which steps were worked on in it.` : "";
  }
}

const slotsOf = (slot) => (x, digits = 4) => `${trimmed(x / slot, digits)} ${x === slot ? "slot" : "slots"}`;

// A path for each kind of work, so that a plan of thousands of actions is a handful of elements.
function schedule(film) {
  const steps = Math.max(1, film.data.steps);
  const marks = film.spans ? null : new Marks(film);
  const draw = (layer, sx, sy) => {
    for (const kind of film.data.kinds) {
      if (kind === "wait") continue;
      let d = "";
      for (const piece of film.pieces) {
        if (piece.kind !== kind || piece.end < film.range.lo || piece.start > film.range.hi) continue;
        if (film.spans) {
          const left = sx(piece.start), top = sy(piece.to);
          d += `M${px(left)} ${px(top)}H${px(sx(piece.end))}V${px(sy(piece.from))}H${px(left)}z`;
        } else {
          const [from, to] = kind === "reverse" ? [piece.to, piece.from] : [piece.from, piece.to];
          d += `M${px(sx(piece.start))} ${px(sy(from))}L${px(sx(piece.end))} ${px(sy(to))}`;
        }
      }
      if (d) layer.append(svg("path", { class: film.spans ? `${kind} fill` : kind, d }));
    }
    marks?.draw(layer, film.range, sx, sy);
  };
  const points = [];
  for (const piece of film.pieces) {
    if (piece.kind === "wait") continue;
    points.push({ x: piece.start, to: piece.end, y: (piece.from + piece.to) / 2, text: () => film.text(piece) });
  }
  if (!film.spans) for (const lane of film.lanes) for (const piece of lane.pieces) points.push({ x: piece.out ? piece.start : piece.end, y: piece.step, text: () => film.moveText(lane, piece) });
  points.sort((a, b) => a.x - b.x);
  const sign = film.spans ? "fill" : "line";
  const signs = film.data.kinds.filter((kind) => kind !== "wait" && film.has(kind)).map((kind) => [signOf(sign, kind), workNames[kind]]);
  if (marks) signs.push(...marks.legend());
  return chart({
    label: "Schedule", about: "Steps against time.", x: film.range, xFormat: seconds, xLabel: "time", y: [0, steps], yFormat: number, yLabel: "step", height: 380,
    legend: legend(signs), draw, points,
    table: () => ({ head: ["", "steps from", "up to", "start", "end"], rows: film.pieces.filter((piece) => piece.kind !== "wait").map((piece) => [workNames[piece.kind], number(piece.from), number(piece.to), seconds(piece.start), seconds(piece.end)]) }),
  });
}

function timeline(film) {
  const work = film.pieces.filter((piece) => piece.kind !== "wait"), waits = film.pieces.filter((piece) => piece.kind === "wait");
  const rows = [{ name: "compute", pieces: work, shares: true, text: (piece) => film.text(piece), style: (piece) => piece.kind }];
  if (waits.length) rows.push({ name: "waiting", pieces: waits, text: (piece) => film.text(piece), style: () => "wait" });
  for (const lane of film.lanes) {
    // Copies within fast memory mostly take no time.
    if (!lane.pieces.some((piece) => lane.name !== "fast" || (film.spans ? piece.busy > 0 : piece.end > piece.start))) continue;
    const name = lane.name === "fast" ? "copies in fast" : lane.name;
    rows.push({ name, pieces: lane.pieces, text: (piece) => film.moveText(lane, piece), style: (piece) => (film.spans ? (lane.name.endsWith(" reads") ? "read" : "write") : piece.out ? "write" : "read") });
  }
  const draw = (layer, sx, sy, box) => {
    const thick = (box.h / rows.length) * 0.7;
    rows.forEach((row, i) => {
      const base = sy(rows.length - i - 0.5) + thick / 2;
      const paths = new Map();
      // Shares of a span are stacked.
      const stacked = new Map();
      for (const piece of row.pieces) {
        if (piece.end < film.range.lo || piece.start > film.range.hi) continue;
        const under = stacked.get(piece.start) ?? 0, style = row.style(piece);
        if (film.spans) stacked.set(piece.start, under + piece.busy);
        const left = sx(piece.start), right = Math.max(sx(piece.end), left + 0.4), bottom = base - under * thick;
        paths.set(style, (paths.get(style) ?? "") + `M${px(left)} ${px(bottom)}H${px(right)}v${px(-thick * piece.busy)}H${px(left)}z`);
      }
      for (const [style, d] of paths) layer.append(svg("path", { class: `${style} fill`, d, "stroke-width": film.spans ? 0 : 0.5 }));
    });
  };
  const points = rows.flatMap((row, i) => row.pieces.map((piece) => ({ x: piece.start, to: piece.end, y: rows.length - i - 0.5, text: () => row.text(piece) })));
  points.sort((a, b) => a.x - b.x);
  const signs = film.data.kinds.filter((kind) => film.has(kind)).map((kind) => [signOf("fill", kind), workNames[kind]]);
  if (rows.some((row) => row.style({ out: true }) === "write")) signs.push([signOf("fill", "write"), "write"], [signOf("fill", "read"), "read"]);
  return chart({ label: "Compute and transfers", about: "What ran when.", x: film.range, xFormat: seconds, xLabel: "time", y: [0, rows.length], yFormat: () => "", rows: rows.map((row) => row.name), height: 70 + 36 * rows.length, legend: legend(signs), draw, points,
    table: () => ({ head: ["", "", "start", "end"], rows: rows.flatMap((row) => row.pieces.map((piece) => [row.name, row.text(piece), seconds(piece.start), seconds(piece.end)])) }) });
}

// `slot`: bytes of one, in the literature's accounting of fast memory.
function memory(film, place, slot) {
  const amount = slot && place.name === "fast" ? slotsOf(slot) : bytes;
  const at = place.at.map((tick) => film.time(tick));
  const most = place.bytes.reduce((a, b) => Math.max(a, b), 0);
  const shown = place.limit !== null && place.limit <= most * 3;
  const top = (shown ? Math.max(place.limit, most) : most) * 1.08 || 1;
  const end = film.data.seconds;
  const draw = (layer, sx, sy) => {
    if (!at.length) return;
    let d = `M${px(sx(at[0]))} ${px(sy(0))}`;
    let last = null;
    at.forEach((time, i) => {
      const y = px(sy(place.bytes[i]));
      d += `H${px(sx(time))}`;
      if (y !== last) d += `V${y}`;
      last = y;
    });
    d += `H${px(sx(end))}V${px(sy(0))}z`;
    layer.append(svg("path", { class: "memory", d, style: "fill: var(--memory)" }));
    if (shown) layer.append(svg("path", { class: "limit stroke", d: `M${px(sx(film.range.lo))} ${px(sy(place.limit))}H${px(sx(film.range.hi))}` }));
  };
  const points = at.map((time, i) => ({ x: time, y: place.bytes[i], text: () => `${amount(place.bytes[i])} in ${place.name === "fast" ? "fast memory" : place.name} ${film.spans ? "at most, from" : "from"} ${film.at(time)}` }));
  const limit = place.limit === null ? "no limit" : `${amount(place.limit)} allowed`;
  return chart({ label: place.name === "fast" ? "Fast memory" : `Memory of ${place.name}`, about: `At most ${amount(most)}, ${limit}.`, x: film.range, xFormat: seconds, xLabel: "time", y: [0, top], yFormat: amount, binary: amount === bytes, height: 210, draw, points,
    legend: legend([[signOf("fill", "memory"), `${place.name === "fast" ? "fast memory" : place.name}, at most ${amount(most)}`], ...(shown ? [[signOf("line", "limit"), `budget: ${amount(place.limit)}`]] : [])]),
    table: () => ({ head: ["from", "bytes"], rows: at.map((time, i) => [seconds(time), number(place.bytes[i])]) }) });
}

function filmSections(data, slot) {
  const film = new Film(data);
  if (!film.pieces.length && !film.lanes.some((lane) => lane.pieces.length)) return [section("Schedule", "Nothing runs.")];
  if (!(data.seconds > 0)) return [section("Schedule", "All steps take 0 seconds, so there is no time axis to draw.")];
  const lanes = data.sync ? "Transfers and compute take turns: while something is moved, nothing is computed." : "Compute is one lane. Transfers to and from slow tiers have their own, which run beside it.";
  const found = [
    section("Schedule", `Each line is a run of steps: rising lines run forward, falling lines backward. A rising line that starts above 0 begins at a saved state.${film.note()}`, schedule(film)),
    section("Compute and transfers", lanes, timeline(film)),
  ];
  const counted = slot ? "States kept, in slots. Nothing else is charged." : "What each place holds. In fast memory the working set counts: live state, gradient, the tape reversed next. Tapes that a run of steps leaves count from its start.";
  if (data.memory.length) found.push(section("Memory", counted, ...data.memory.map((place) => memory(film, place, slot))));
  return found;
}
