// Numbers as people read them.

const trimmed = (x, digits = 4) => String(Number(x.toPrecision(digits)));
const powered = (x) => x.toExponential(3).replace(/\.?0*e\+?/, "e");

function number(x) {
  if (x === null || !Number.isFinite(x)) return "–";
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return x.toLocaleString("en-US");
  const size = Math.abs(x);
  return size !== 0 && (size < 1e-4 || size >= 1e7) ? powered(x) : trimmed(x, 5);
}

function bytes(x) {
  if (x === null) return "no limit";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; Math.abs(x) >= 1024 && unit + 1 < units.length; ++unit) x /= 1024;
  return `${trimmed(x)} ${units[unit]}`;
}

function seconds(x) {
  if (x === null || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${trimmed(x * 1e9)} ns`;
  if (size < 1e-3) return `${trimmed(x * 1e6)} µs`;
  if (size < 1) return `${trimmed(x * 1e3)} ms`;
  return size < 1e5 ? `${trimmed(x)} s` : `${powered(x)} s`;
}

// Round numbers between lo and hi, about `count` of them; of bytes powers of two.
function ticks(lo, hi, count, binary = false) {
  if (!(hi > lo)) return [lo];
  const rough = (hi - lo) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = binary ? 2 ** Math.ceil(Math.log2(rough)) : [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; ++i) found.push(i * step + 0);
  return found;
}

// Powers of the base; where those are too far apart for two of them, round numbers.
function logTicks(lo, hi, base, count) {
  const found = [];
  for (let e = Math.floor(Math.log(lo) / Math.log(base)); base ** e <= hi * 1.0001; ++e) {
    if (base ** e >= lo * 0.9999) found.push(base ** e);
  }
  if (found.length < 2) return ticks(lo, hi, count, base === 2);
  const every = Math.ceil(found.length / count);
  return found.filter((_, i) => i % every === 0);
}
