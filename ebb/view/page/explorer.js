// Fields and sliders for the numbers of the page's plan. The planner in the page answers; the address says what differs from the start.

const { question: startQuestion, strategies: strategyNames } = data.explorer;
const startSetting = settingOf(startQuestion);
const mostTiers = 30;
const newTier = { capacity: null, write: 1e9, read: 2e9, write_latency: 1e-4, read_latency: 1e-4, duplex: true };
let setting = structuredClone(startSetting);

const explored = html("div");
explored.append(...page.childNodes);
const says = html("output", { class: "says", role: "status" });
const faultsSay = html("output", { class: "faults", role: "status" });
const faults = new Map();  // by the id of the field that has one
const outdated = html("p");
outdated.hidden = true;
const command = html("code");
const commandLine = html("p", { class: "command" }, "The same on the command line: ", command);
const fields = html("form", { class: "fields" });

// {id, label, kind, open: may have no limit, of(setting): whose member `key` it is}
function fieldsOf(now) {
  const own = (key, label, kind, open = false) => ({ id: key, label, kind: kinds[kind], open, key, of: (s) => s });
  const found = [own("steps", "Steps", "count")];
  found.push(startSetting.slots === undefined ? own("budget", "Budget of fast memory", "bytes", true) : own("slots", "Slots of fast memory", "count"));
  found.push(own("state", "State", "bytes"), own("tapes", "Tape, in states", "share"), own("forward", "Seconds forward", "seconds"));
  if (startSetting.record !== null) found.push(own("record", "Seconds forward with tape", "seconds"));
  found.push(own("backward", "Seconds backward", "seconds"));
  now.tiers.forEach((tier, i) => {
    const part = (name, keys, label, kind, open = false) => found.push({ id: `${tier.name}.${name}`, label, kind: kinds[kind], open, key: keys[0], both: keys[1], of: (s) => s.tiers[i], tier: i });
    part("capacity", ["capacity"], "Capacity", "bytes", true);
    part("write", ["write"], "Writes", "rate", true);
    part("read", ["read"], "Reads", "rate", true);
    if (tier.write_latency === tier.read_latency) part("latency", ["write_latency", "read_latency"], "Seconds of latency", "seconds");
    else {
      part("write_latency", ["write_latency"], "Seconds before a write", "seconds");
      part("read_latency", ["read_latency"], "Seconds before a read", "seconds");
    }
  });
  return found;
}

const valueOf = (field, of) => field.of(of)[field.key];
const textOf = (field, value) => (value === null ? "no limit" : field.kind.write(value));
function put(field, of, value) {
  field.of(of)[field.key] = value;
  if (field.both) field.of(of)[field.both] = value;
}
function read(field, text) {
  const empty = /^\s*(|no limit|unlimited)\s*$/i.test(text);
  if (empty) return field.open ? null : NaN;
  const value = field.kind.read(text);
  return value < mostNumber ? value : NaN;
}

// The text says a number exactly; the slider stands at the nearest of its own.
function row(field, origin) {
  const values = sliderValues(field.kind, valueOf(field, origin), field.open);
  const text = html("input", { type: "text", id: `field-${field.id}`, autocomplete: "off", spellcheck: "false" });
  const slider = html("input", { type: "range", min: "0", max: String(values.length - 1), step: "1", "aria-label": `${field.label}, slider` });
  const distance = (a, b) => (a === b ? 0 : a === null || b === null ? Infinity : Math.abs(Math.log((a || 1e-12) / (b || 1e-12))));
  const show = () => {
    const value = valueOf(field, setting);
    text.value = textOf(field, value);
    text.removeAttribute("aria-invalid");
    fault(field.id, "");
    const away = values.map((own) => distance(own, value));
    slider.value = String(away.indexOf(Math.min(...away)));
    slider.setAttribute("aria-valuetext", text.value);
  };
  slider.addEventListener("input", () => {
    put(field, setting, values[Number(slider.value)]);
    show();
    ask();
  });
  text.addEventListener("change", () => {
    const value = read(field, text.value);
    if (Number.isNaN(value)) {
      text.setAttribute("aria-invalid", "true");
      fault(field.id, `${field.label}: "${text.value}" is not understood; write it like ${field.kind.write(field.kind.usual)}${field.open ? ", or no limit" : ""}.`);
      return;
    }
    put(field, setting, value);
    show();
    ask();
  });
  show();
  return html("div", { class: "field" }, html("label", { for: text.id }, field.label), text, slider);
}

function say(text) {
  says.textContent = text;
  says.classList.remove("remark");
}

function fault(id, text) {
  if (text) faults.set(id, text);
  else faults.delete(id);
  faultsSay.textContent = [...faults.values()].join(" ");
  faultsSay.classList.toggle("remark", faults.size > 0);
}

function button(label, act) {
  const made = html("button", { type: "button" }, label);
  made.addEventListener("click", act);
  return made;
}

function choice() {
  const strategy = html("select", { id: "field-strategy" }, ...strategyNames.map((name) => html("option", {}, name)));
  strategy.value = setting.strategy;
  strategy.addEventListener("change", () => {
    setting.strategy = strategy.value;
    ask();
  });
  const sync = html("input", { type: "checkbox", id: "field-sync" });
  sync.checked = setting.sync;
  sync.addEventListener("change", () => {
    setting.sync = sync.checked;
    ask();
  });
  return [
    html("div", { class: "field" }, html("label", { for: "field-strategy" }, "Strategy"), strategy),
    html("div", { class: "field check" }, sync, html("label", { for: "field-sync" }, "Transfers and compute take turns")),
  ];
}

function addTier() {
  const names = ["ssd", "disk", ...Array.from({ length: 30 }, (_, i) => `tier${i + 1}`)];
  setting.tiers.push({ name: names.find((name) => setting.tiers.every((tier) => tier.name !== name)), ...newTier });
}

// Draws all fields anew: tiers have come or gone.
function layOut() {
  const origin = atStart(setting.tiers.map((tier) => tier.name));
  faults.clear();
  const rows = fieldsOf(setting);
  const rowsOf = (tier) => rows.filter((field) => field.tier === tier).map((field) => row(field, origin));
  const tiers = setting.tiers.map((tier, i) => {
    const remove = button(`Remove ${tier.name}`, () => {
      setting.tiers.splice(i, 1);
      layOut();
      ask();
      fields.querySelector("#add-tier").focus();
    });
    return html("fieldset", {}, html("legend", {}, `Tier ${tier.name}`), ...rowsOf(i), remove);
  });
  const add = button("Add a slow tier", () => {
    addTier();
    layOut();
    ask();
    fields.querySelector("fieldset:last-of-type input").focus();
  });
  add.id = "add-tier";
  add.disabled = setting.tiers.length >= mostTiers;
  const reset = button("Back to the start", () => {
    setting = structuredClone(startSetting);
    layOut();
    ask();
    fields.querySelector("#reset").focus();
  });
  reset.id = "reset";
  fields.replaceChildren(html("fieldset", {}, html("legend", {}, "Chain and memory"), ...rowsOf(undefined), ...choice()), ...tiers, html("p", { class: "zoom" }, add, reset));
}

// Only what differs from the start: steps=2000&ssd.write=2GB/s. Where tiers came or went, `tiers` lists those that are there.
function fragment() {
  const parts = [];
  const add = (key, value) => parts.push(`${key}=${encodeURIComponent(value).replaceAll("%2F", "/")}`);
  const names = (of) => of.tiers.map((tier) => tier.name).join(",");
  if (names(setting) !== names(startSetting)) add("tiers", names(setting));
  const origin = atStart(setting.tiers.map((tier) => tier.name));
  for (const field of fieldsOf(setting)) if (valueOf(field, setting) !== valueOf(field, origin)) add(field.id, textOf(field, valueOf(field, setting)));
  if (setting.strategy !== startSetting.strategy) add("strategy", setting.strategy);
  if (setting.sync !== startSetting.sync) add("sync", setting.sync ? "yes" : "no");
  return parts.join("&");
}

// The start, with these tiers.
function atStart(names) {
  const known = (name) => startSetting.tiers.find((tier) => tier.name === name);
  return { ...structuredClone(startSetting), tiers: names.map((name) => ({ ...(known(name) ?? { name, ...newTier }) })) };
}

// As `ebb plan --tier` takes names; undefined where one is not understood. The page's own tiers may have others.
function tierNames(text) {
  const own = startSetting.tiers.map((tier) => tier.name);
  const names = text.split(",").filter(Boolean);
  const fine = (name) => own.includes(name) || (/^[A-Za-z][\w.-]*$/.test(name) && name !== "work" && name !== "fast");
  return names.length <= mostTiers && new Set(names).size === names.length && names.every(fine) ? names : undefined;
}

// A setting from the address; what is not understood is as at the start.
function fromFragment(text) {
  const said = new Map(new URLSearchParams(text.replaceAll("+", "%2B")));
  const names = said.has("tiers") ? tierNames(said.get("tiers")) : undefined;
  const found = atStart(names ?? startSetting.tiers.map((tier) => tier.name));
  for (const field of fieldsOf(found)) {
    const value = said.has(field.id) ? read(field, said.get(field.id)) : NaN;
    if (!Number.isNaN(value)) put(field, found, value);
  }
  if (strategyNames.includes(said.get("strategy"))) found.strategy = said.get("strategy");
  if (said.has("sync")) found.sync = said.get("sync") === "yes";
  return found;
}

function setTitle(text) {
  document.querySelector("h1").textContent = document.title = text;
}

// The planner names the least budget that would do.
function remedyOf(error) {
  const [, least, unit] = /it needs at least (\d+) (byte|slot)/.exec(error) ?? [];
  if (least === undefined) return [];
  const [name, text] = unit === "slot" ? ["slots", count(Number(least), "slot")] : ["budget", bytes(Number(least))];
  return [" ", button(`Use ${text}`, () => {
    setting[name] = Number(least);
    layOut();
    ask();
    fields.querySelector(`#field-${name}`).focus();
  })];
}

// The last plan stays in sight, as what it is.
function refuse(error) {
  says.replaceChildren(error, ...remedyOf(error));
  says.classList.add("remark");
  const memory = setting.slots !== undefined ? count(setting.slots, "slot") : setting.budget === null ? "unlimited memory" : bytes(setting.budget);
  setTitle(`${count(setting.steps, "step")} in ${memory}: ${error.includes("does not fit") ? "does not fit" : "no plan"}`);
  outdated.textContent = `Below is the last plan that fits: ${shown.title}.`;
  outdated.hidden = false;
  explored.classList.add("outdated");
}

let shown = data;
function hear(answer, last) {
  if (answer.curve) {
    explored.append(curveSection(answer.curve, shown.chosen, shown.slot));
    return;
  }
  if (last) explored.removeAttribute("aria-busy");
  if ("error" in answer) {
    if (last) refuse(answer.error);
    return;
  }
  shown = answer;
  if (last) say(`${answer.title}, ${seconds(answer.chosen.seconds)}`);
  setTitle(answer.title);
  outdated.hidden = true;
  explored.classList.remove("outdated");
  explored.replaceChildren(...contents(answer));
}
const planner = new Planner(hear);

function ask() {
  const question = questionOf(setting, startQuestion);
  const words = commandOf(question);
  commandLine.hidden = words === null;
  command.textContent = words ?? "";
  say("Planning …");
  explored.setAttribute("aria-busy", "true");
  history.replaceState(null, "", `#${fragment()}`);
  planner.ask(question);
}

// An address without a setting changes nothing.
function readAddress() {
  if (!location.hash.includes("=")) return;
  explorer.open = true;
  setting = fromFragment(location.hash.slice(1));
  layOut();
  ask();
}

const explorer = html("details", { class: "explorer" }, html("summary", {}, "Explore: other steps, budgets, costs and tiers"), fields, faultsSay, says, commandLine);
fields.addEventListener("submit", (event) => event.preventDefault());
layOut();
command.textContent = commandOf(startQuestion) ?? "";
commandLine.hidden = commandOf(startQuestion) === null;
page.append(explorer, outdated, explored);
addEventListener("hashchange", readAddress);
readAddress();
