// Asks the planner, which runs in a worker: the page never waits for it. Of questions that come while it is at work the last one counts.

class Planner {
  // hear(answer, last): data of a plan, {curve} for the same plan, or {error}; last: nothing newer was asked.
  constructor(hear) {
    this.hear = hear;
    this.wanted = null;
    this.since = null;  // of what the worker is at
  }

  // Questions that take longer are given up for newer ones.
  static patience = 1000;
  static curveSeconds = 0.6;

  ask(question) {
    this.wanted = JSON.stringify(question);
    this.loading ??= Planner.compiled().then((module) => {
      this.module = module;
      this.begin();
    }, (error) => {
      this.failed = { error: `This browser cannot run the planner (${error}).` };
      this.hear(this.failed, true);
    });
    if (this.failed) this.hear(this.failed, true);
    if (!this.module) return;
    if (this.since === null) {
      this.begin();
      return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.wanted === null || this.since === null) return;
      this.dismiss();
      this.begin();
    }, Math.max(0, this.since + Planner.patience - performance.now()));
  }

  begin() {
    this.since = performance.now();
    this.worker ??= this.hired();
    this.worker.postMessage({ module: this.module, question: this.wanted });
    this.wanted = null;
  }

  listen({ answer, broken }) {
    this.since = null;
    if (broken !== undefined) this.dismiss();
    const heard = broken === undefined ? JSON.parse(answer) : { error: `The planner stopped (${broken}).` };
    const last = this.wanted === null;
    if (!last) this.begin();
    else if (heard.figures) {
      this.since = performance.now();
      this.worker.postMessage({ seconds: Planner.curveSeconds });
    }
    this.hear(heard, last);
  }

  hired() {
    this.url ??= URL.createObjectURL(new Blob([document.getElementById("planner-worker").textContent], { type: "text/javascript" }));
    const worker = new Worker(this.url);
    worker.onmessage = ({ data: message }) => worker === this.worker && this.listen(message);
    worker.onerror = (event) => worker === this.worker && this.listen({ broken: event.message });
    return worker;
  }

  dismiss() {
    this.worker?.terminate();
    this.worker = null;
    this.since = null;
  }

  static async compiled() {
    const packed = Uint8Array.from(atob(document.getElementById("planner").textContent), (c) => c.charCodeAt(0));
    const bytes = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    return WebAssembly.compile(await bytes);
  }
}
