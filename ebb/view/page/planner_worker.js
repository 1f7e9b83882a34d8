// The planner at work, beside the page. It is asked one thing at a time: {module, question} for a plan, {seconds} for time against
// budget around the last one. What it says is the text of C++ (ebb/view/explorer.h), or {broken} where it could not go on.

// Of what C++ may ask its host only a clock is needed; anything else would be an error in the planner.
function start(module) {
  let memory;
  const own = {
    clock_time_get: (id, precision, place) => {
      new DataView(memory.buffer).setBigUint64(place, BigInt(Math.round(performance.now() * 1e6)), true);
      return 0;
    },
    environ_sizes_get: (count, bytes) => {
      new DataView(memory.buffer).setUint32(count, 0, true);
      new DataView(memory.buffer).setUint32(bytes, 0, true);
      return 0;
    },
    environ_get: () => 0,
    emscripten_notify_memory_growth: () => {},
  };
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {};
    imports[from][name] = own[name] ?? (() => { throw new Error(`the planner called ${name}`); });
  }
  const { exports } = new WebAssembly.Instance(module, imports);
  memory = exports.memory;
  exports._initialize();
  const answer = (bytes) => new TextDecoder().decode(new Uint8Array(memory.buffer, exports.answer_place(), bytes));
  return {
    plan(question) {
      const text = new TextEncoder().encode(question);
      const place = exports.question_place(text.length);
      new Uint8Array(memory.buffer, place, text.length).set(text);
      return answer(exports.plan());
    },
    curve: (seconds) => answer(exports.curve(seconds)),
  };
}

let planner;
onmessage = ({ data: { module, question, seconds } }) => {
  try {
    planner ??= start(module);
    postMessage({ answer: question === undefined ? planner.curve(seconds) : planner.plan(question) });
  } catch (error) {
    postMessage({ broken: String(error) });
  }
};
