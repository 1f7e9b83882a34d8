// What can be moved of a plan's question: its numbers as people write them, the steps of their sliders, and the `ebb plan` that asks the
// same. Numbers without a limit are null.

const unitPowers = { "": 1, k: 1e3, ki: 2 ** 10, m: 1e6, mi: 2 ** 20, g: 1e9, gi: 2 ** 30, t: 1e12, ti: 2 ** 40, p: 1e15, pi: 2 ** 50 };

// As `ebb plan` reads bytes; NaN for other text.
function bytesOf(text) {
  const [, number, unit] = /^\s*(\d+\.?\d*(?:e\d+)?|\.\d+)\s*(|[kmgtp]i?)b?\s*$/i.exec(text) ?? [];
  return number === undefined ? NaN : Math.floor(Number(number) * unitPowers[unit.toLowerCase()]);
}

// In the largest unit that says it exactly.
function bytesText(x) {
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  const unit = units.findLastIndex((name, i) => x > 0 && x % 2 ** (10 * (i + 1)) === 0);
  return unit < 0 ? `${x}B` : `${x / 2 ** (10 * (unit + 1))}${units[unit]}`;
}

function rateText(x) {
  const units = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
  const unit = Math.max(0, Math.min(4, Math.floor(Math.log10(x) / 3)));
  const text = `${x / 10 ** (3 * unit)}${units[unit]}`;
  return bytesOf(text.replace("/s", "")) === x ? text : `${x}B/s`;
}

// The planner counts in 63 bits.
const mostNumber = 2 ** 63;

const positive = (text) => (/^\s*[\d.]+(e[+-]?\d+)?\s*$/i.test(text) ? Number(text) : NaN);
const digits = (x, n) => Number(x.toPrecision(n));

// How each kind of number is read and written, and what values a slider has.
const kinds = {
  count: { read: (text) => (Number.isInteger(positive(text)) ? positive(text) : NaN), write: String, round: (x) => Math.max(1, digits(Math.round(x), 2)), usual: 100 },
  bytes: { read: bytesOf, write: bytesText, round: (x) => { const unit = 1024 ** Math.max(0, Math.floor(Math.log2(x / 16) / 10)); return Math.max(1, Math.round(x / unit) * unit); }, usual: 2 ** 30 },
  rate: { read: (text) => bytesOf(text.replace(/\/s\s*$/, "")) || NaN, write: rateText, round: (x) => Math.max(1, digits(Math.round(x), 2)), usual: 1e9 },
  seconds: { read: positive, write: String, round: (x) => digits(x, 2), usual: 1e-3, zero: true },
  share: { read: (text) => positive(text) || NaN, write: (x) => String(digits(x, 6)), round: (x) => digits(x, 2), usual: 1 },
};

// From a thousandth of where it starts to a thousand times that, an eighth of a doubling at a time; 0 and no limit where they make sense.
function sliderValues(kind, start, open) {
  const middle = start || kind.usual;
  const values = new Set();
  for (let i = -80; i <= 80; ++i) values.add(i === 0 ? middle : kind.round(middle * 2 ** (i / 8)));
  const sorted = [...values].filter((x) => x < mostNumber).sort((a, b) => a - b);
  return [...(kind.zero ? [0] : []), ...sorted, ...(open ? [null] : [])];
}

// {steps, state, tapes, forward, record, backward, budget | slots, strategy, sync, tiers}: `tapes` is a tape in states; `record` is null
// where leaving a tape takes no time of its own.
function settingOf({ chain, platform, options }) {
  const { step } = chain;
  const memory = options.slots === undefined ? { budget: options.budget ?? platform.fast ?? null } : { slots: options.slots };
  if (memory.budget >= mostNumber) memory.budget = null;
  const tier = ({ name, capacity = null, write = null, read = null, write_latency, read_latency, duplex }) => ({ name, capacity, write, read, write_latency, read_latency, duplex });
  return {
    steps: chain.repeat, ...memory, state: step.state, tapes: step.tape / step.state, forward: step.forward, record: step.record === step.forward ? null : step.record, backward: step.backward,
    strategy: options.strategy, sync: options.sync ?? false, tiers: platform.tiers.map(tier),
  };
}

const without = (object) => Object.fromEntries(Object.entries(object).filter(([, value]) => value !== null && value !== undefined));

// What the setting does not say is as in `start`; an adjoint that was as large as the state stays so.
function questionOf(setting, start) {
  const step = start.chain.step;
  const { steps, state, tapes, forward, backward } = setting;
  const own = { ...step, forward, record: setting.record ?? forward, backward, state, tape: Math.max(1, Math.round(tapes * state)), adjoint: step.adjoint === step.state ? state : step.adjoint };
  return {
    chain: { ...start.chain, repeat: steps, step: own },
    platform: without({ ...start.platform, fast: null, tiers: setting.tiers.map(without) }),
    options: without({ ...start.options, budget: setting.budget, slots: setting.slots, strategy: setting.strategy, sync: setting.sync || null }),
  };
}

// The words of a tier; null where none say it.
function tierWord(tier) {
  const parts = [];
  if (tier.capacity !== null) parts.push(`capacity=${bytesText(tier.capacity)}`);
  if (tier.write !== null) parts.push(`write=${rateText(tier.write)}`);
  if (tier.read !== null) parts.push(`read=${rateText(tier.read)}`);
  if (tier.write_latency === tier.read_latency) {
    if (tier.write_latency > 0) parts.push(`latency=${tier.write_latency}`);
  } else if (tier.write === null && tier.read === null) {
    parts.push(`write_time=${tier.write_latency}`, `read_time=${tier.read_latency}`);
  } else {
    return null;
  }
  if (!tier.duplex) parts.push("duplex=no");
  return `${tier.name}${parts.length ? `:${parts.join(",")}` : ""}`;
}

// People paste the command into a shell: a word that needs quotes there is none of `ebb plan`.
const plainWord = /^[\w.,:=/%+-]+$/;

// The options of `ebb plan` that ask the same; null where it has none for some part.
function commandOf({ chain, platform, options }) {
  const { step } = chain, tiers = settingOf({ chain, platform, options }).tiers.map(tierWord);
  const unsaid = step.adjoint !== step.state || step.scratch || step.live || chain.call || platform.copy || options.tapes_stay || options.length_unknown;
  if (unsaid || tiers.includes(null)) return null;
  const words = ["ebb", "plan"];
  const say = (option, value) => value !== undefined && words.push(`--${option}`, String(value));
  say("steps", chain.repeat);
  say("state", bytesText(step.state));
  say("tape", bytesText(step.tape));
  say("forward", step.forward);
  if (step.record !== step.forward) say("record", step.record);
  say("backward", step.backward);
  if (options.budget !== undefined) say("budget", bytesText(options.budget));
  say("slots", options.slots);
  if (options.working !== undefined) say("working", bytesText(options.working));
  if (options.strategy !== "auto") say("strategy", options.strategy);
  say("interval", options.intervals?.join(","));
  say("period", options.period);
  for (const word of tiers) say("tier", word);
  if (options.sync) words.push("--sync");
  return words.every((word) => plainWord.test(word)) ? words.join(" ") : null;
}
