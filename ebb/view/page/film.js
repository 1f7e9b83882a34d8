// What happened when: the schedule, the lanes of compute and transfers, the memory of each place.

const workNames = { advance: "forward", record: "forward, leaving tapes", reverse: "backward", recover: "forward again after a failure", wait: "waiting for transfers" };
const workPast = { advance: "Ran forward", record: "Ran forward and left tapes of", reverse: "Went backward through", recover: "Ran again", wait: "Waited for transfers" };

// More marks of saves and loads than this hide what they stand on.
const mostMarks = 250;

class Film {
  constructor(data) {
    this.data = data;
    this.spans = data.spans > 0;
    this.range = new Range(0, data.seconds > 0 ? data.seconds : 1);
    const work = data.work;
    this.pieces = work.kind.map((kind, i) => ({ kind: data.kinds[kind], start: this.time(work.start[i]), end: this.time(work.end[i]), from: work.from[i], to: work.to[i], busy: this.spans ? work.busy[i] / 1000 : 1 }));
    this.lanes = data.lanes.map((lane) => ({ name: lane.name, pieces: lane.start.map((start, i) => ({
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
    const place = lane.name.replace(/ (writes|reads|transfers)$/, "");
    return `${piece.out ? "Saved" : "Loaded"} the ${piece.tape ? "tape of step" : "state before step"} ${number(piece.step)} ${piece.out ? "to" : "from"} ${place === "fast" ? "fast memory" : place}, ${bytes(piece.bytes)}, ${when}`;
  }

  note() {
    const moves = this.lanes.reduce((sum, lane) => sum + lane.pieces.length, 0);
    if (!this.spans && moves > mostMarks) return ` The ${number(moves)} saves and loads are marked where you zoom in.`;
    return this.spans ? ` There are too many actions to draw one by one: time is cut into ${number(this.data.spans)} spans, and each shows which steps were worked on in it.` : "";
  }
}

const slotsOf = (slot) => (x, digits = 4) => `${trimmed(x / slot, digits)} ${x === slot ? "slot" : "slots"}`;

// A path for each kind of work, so that a plan of thousands of actions is a handful of elements.
function schedule(film) {
  const steps = Math.max(1, film.data.steps);
  const moves = film.lanes.flatMap((lane) => lane.pieces.map((piece) => ({ lane, piece })));
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
    const inSight = moves.filter(({ piece }) => piece.end >= film.range.lo && piece.start <= film.range.hi).length;
    if (film.spans || inSight > mostMarks) return;
    for (const out of [true, false]) {
      let d = "";
      for (const lane of film.lanes) {
        for (const piece of lane.pieces) {
          const at = out ? piece.start : piece.end;
          if (piece.out !== out || at < film.range.lo || at > film.range.hi) continue;
          d += out ? `M${px(sx(at) - 3.5)} ${px(sy(piece.step) - 3.5)}h7v7h-7z` : `M${px(sx(at))} ${px(sy(piece.step) - 4.5)}l4.5 8h-9z`;
        }
      }
      if (d) layer.append(svg("path", { class: out ? "write" : "read", d, "stroke-width": 1.5 }));
    }
  };
  const points = [];
  for (const piece of film.pieces) {
    if (piece.kind === "wait") continue;
    points.push({ x: piece.start, to: piece.end, y: (piece.from + piece.to) / 2, text: () => film.text(piece) });
  }
  if (!film.spans) for (const { lane, piece } of moves) points.push({ x: piece.out ? piece.start : piece.end, y: piece.step, text: () => film.moveText(lane, piece) });
  points.sort((a, b) => a.x - b.x);
  const sign = film.spans ? "fill" : "line";
  const signs = film.data.kinds.filter((kind) => kind !== "wait" && film.has(kind)).map((kind) => [kind, workNames[kind], sign]);
  if (!film.spans && moves.some(({ piece }) => piece.out)) signs.push(["write", "save", "box"]);
  if (!film.spans && moves.some(({ piece }) => !piece.out)) signs.push(["read", "load", "up"]);
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
  const signs = film.data.kinds.filter((kind) => film.has(kind)).map((kind) => [kind, workNames[kind], "fill"]);
  if (rows.some((row) => row.style({ out: true }) === "write")) signs.push(["write", "write", "fill"], ["read", "read", "fill"]);
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
    legend: legend([["memory", `${place.name === "fast" ? "fast memory" : place.name}, at most ${amount(most)}`, "fill"], ...(shown ? [["limit", `budget: ${amount(place.limit)}`, "line"]] : [])]),
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
  if (data.memory.length) found.push(section("Memory", "What each place holds. In fast memory the working set counts: live state, gradient, the tape reversed next. Tapes that a run of steps leaves count from its start.", ...data.memory.map((place) => memory(film, place, slot))));
  return found;
}
