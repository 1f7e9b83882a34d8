// Numbers as people read them, with as many digits as tell them apart.

function trimmed(x, digits) {
  const short = Number(x.toPrecision(Math.min(17, digits)));
  return Math.abs(short) < 1000 ? String(short) : short.toLocaleString("en-US", { maximumFractionDigits: 20 });
}
const powered = (x, digits) => x.toExponential(Math.min(16, digits - 1)).replace(/\.?0*e\+?/, "e");

// Digits that tell values apart which differ by `step`, of which `most` is the largest.
const digitsFor = (most, step) => Math.max(4, Math.ceil(Math.log10(Math.abs(most) / step) + 1e-9) + 1) || 4;

function number(x, digits = 5) {
  if (x === null || !Number.isFinite(x)) return "–";
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return x.toLocaleString("en-US");
  const size = Math.abs(x);
  return size !== 0 && (size < 1e-4 || size >= 1e7) ? powered(x, digits) : trimmed(x, digits);
}

const count = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

function bytes(x, digits = 4) {
  if (x === null) return "no limit";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; Math.abs(x) >= 1024 && unit + 1 < units.length; ++unit) x /= 1024;
  return `${trimmed(x, digits)} ${units[unit]}`;
}

function seconds(x, digits = 4) {
  if (x === null || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${trimmed(x * 1e9, digits)} ns`;
  if (size < 1e-3) return `${trimmed(x * 1e6, digits)} µs`;
  if (size < 1) return `${trimmed(x * 1e3, digits)} ms`;
  return size < 1e5 ? `${trimmed(x, digits)} s` : `${powered(x, digits)} s`;
}

const percent = (x, digits = 4) => (x === null || !Number.isFinite(x) ? "–" : `${trimmed(x * 100, digits)} %`);
const times = (x, digits = 4) => (x === null || !Number.isFinite(x) ? "–" : `${trimmed(x, digits)} x`);

// How values are written, by the unit that the data name.
const formats = { "": number, s: seconds, B: bytes, "%": percent, x: times };

// Round numbers between lo and hi, about `wanted` of them; of bytes powers of two.
function ticks(lo, hi, wanted, binary = false) {
  const rough = hi / wanted - lo / wanted;
  if (!(rough > 1e-12 * Math.max(Math.abs(lo), Math.abs(hi))) || !Number.isFinite(rough)) return [lo];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = binary ? 2 ** Math.ceil(Math.log2(rough)) : [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999);
  const first = Math.ceil(lo / step - 1e-9);
  const found = [];
  for (let k = 0; k <= 2 * wanted + 2; ++k) {
    const tick = (first + k) * step + 0;
    if (Number.isFinite(tick) && tick <= hi + step * 1e-9) found.push(tick);
  }
  return found;
}

// Powers of the base; where those are too far apart for two of them, round numbers.
function logTicks(lo, hi, base, wanted) {
  const first = Math.ceil(Math.log(lo) / Math.log(base) - 1e-9), last = Math.floor(Math.log(hi) / Math.log(base) + 1e-9);
  if (!(last - first >= 1) || last - first > 5000) return ticks(lo, hi, wanted, base === 2);
  const found = [];
  for (let e = first; e <= last; e += Math.ceil((last - first + 1) / wanted)) found.push(base ** e);
  return found;
}

// A tick's text, told apart from its neighbours'.
function labels(found, format) {
  const step = found.length > 1 ? Math.min(...found.slice(1).map((tick, i) => tick - found[i])) : 0;
  const most = Math.max(...found.map(Math.abs));
  return found.map((tick) => format(tick, step > 0 ? digitsFor(most, step) : 4));
}
