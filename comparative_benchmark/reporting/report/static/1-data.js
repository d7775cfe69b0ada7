// The data of the page, and how its numbers are written.
//
// The files in this folder are parts of one module, joined in the order of their names.

const DATA = JSON.parse(document.getElementById("data").textContent);

// Agreed: ok, and judged by a plain run in the program's own type for want of a float64 run.
const isGood = (item) => item.status === "ok" || item.status === "agreed";
const GLYPHS = {
  faster: "▲", slower: "▼", same: "=", unclear: "?", incomparable: "≠", missing: "∅",
  baseline: "●", wrong_output: "✖", unsupported: "–", unsteady: "~",
};

/** Returns a text of the table of texts; null where there is none. */
function text(position) {
  return position === null || position === undefined ? null : DATA.texts[position];
}

/** Returns one value of a case; null where there is none. */
function value(index, name) {
  const column = DATA.cases[name];
  return column ? column[index] : null;
}

const textOf = (index, name) => text(value(index, name));

// What is looked at often, as plain objects.
const CASES = Array.from({ length: DATA.count }, (_, index) => {
  const runner = DATA.runners[value(index, "runner")];
  const workload = DATA.workloads[value(index, "workload")];
  return {
    index,
    id: value(index, "id"),
    runner,
    runnerName: `${runner.competitor} (${runner.framework})`,
    workload,
    row: value(index, "workload"),
    status: textOf(index, "status"),
    verdict: textOf(index, "verdict"),
    speedup: value(index, "speedup"),
    replicates: value(index, "replicates"),
    spread: value(index, "spread"),
    ms: value(index, "ms"),
    // Of a script that told its speed itself; it has no rival here.
    rate: value(index, "rate"),
    units: textOf(index, "units"),
    quantity: textOf(index, "units") ? "time per unit of work" : workload.quantity,
  };
});
const BY_ID = new Map(CASES.map((item) => [item.id, item]));
const RUNNERS = new Map(CASES.map((item) => [item.runnerName, item.runner]));
const isBaseline = (item) => item.runner.competitor === DATA.baseline;
const BASELINES = Map.groupBy(CASES.filter(isBaseline), (item) => item.row);

/** Returns the baseline's case of the same workload, of the same framework if there is one. */
function baselineOf(item) {
  const found = BASELINES.get(item.row) || [];
  return found.find((other) => other.runner.framework === item.runner.framework) || found[0];
}

const median = (numbers) => {
  const order = numbers.toSorted((a, b) => a - b), half = order.length >> 1;
  return order.length % 2 ? order[half] : (order[half - 1] + order[half]) / 2;
};

// Lower case, once: what the text filter looks into.
for (const item of CASES) {
  const { workload, runner } = item;
  item.haystack = [
    workload.label, workload.input, workload.architecture, workload.data_type, workload.device, workload.machine,
    ...workload.tags, runner.competitor, runner.framework, item.status, item.verdict,
    textOf(item.index, "benchmark"),
  ].join(" ").toLowerCase();
}

/** Returns a number with so many significant digits, never in exponent form. */
function digits(number, significant = 3) {
  if (number === null || number === undefined) return "-";
  if (number === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(number)));
  return number.toLocaleString("en-US", {
    maximumSignificantDigits: Math.max(significant, size + 1 > 6 ? significant : size + 1),
  });
}

/** Returns how many decimals show half of an interval with one digit, at least as many as given. */
function decimals(low, high, least) {
  const half = (high - low) / 2;
  return half > 0 ? Math.min(6, Math.max(least, -Math.floor(Math.log10(half)))) : Math.max(3, least);
}

/** Returns e.g. `1.23 (1.20–1.26)`. */
function withInterval([estimate, low, high]) {
  if (low === null || high === null) return digits(estimate);
  const count = decimals(low, high, Math.max(0, -Math.floor(Math.log10(estimate))));
  return `${estimate.toFixed(count)} (${low.toFixed(count)}–${high.toFixed(count)})`;
}

/** Returns e.g. `1.92×`, with the digits that its interval supports, but two at least. */
function times([estimate, low, high]) {
  const count = low === null || high === null ? 2 : Math.min(3, decimals(low, high, estimate < 10 ? 2 : 1));
  return `${estimate.toFixed(count)}×`;
}

/** Returns e.g. `1.88–1.97`; an interval of one process is called so. */
function limits([estimate, low, high], replicates) {
  if (low === null || high === null) return "";
  const count = Math.min(3, decimals(low, high, estimate < 10 ? 2 : 1));
  return `${low.toFixed(count)}–${high.toFixed(count)}${within(replicates)}`;
}

const within = (replicates) => (replicates === 1 ? ` ${DATA.within_one_process}` : "");

function bytes(count) {
  if (count === null || count === undefined) return "-";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${digits(count)} ${units[unit]}`;
}

function duration(ms) {
  if (ms === null || ms === undefined) return "-";
  return ms < 1000 ? `${digits(ms)} ms` : `${digits(ms / 1000)} s`;
}

function percent(ratio) {
  const change = 100 * (ratio - 1);
  const shown = Math.abs(change) < 10 ? change.toFixed(1) : change.toFixed(0);
  return `${change > 0 ? "+" : ""}${shown} %`.replace("-", "−");
}

const when = (iso) => (iso ? iso.replace("T", " ").slice(0, 16) : "unknown time");
const words = (name) => (name || "").replaceAll("_", " ");

/** Makes an element; children are texts, elements or nothing. Never parses HTML. */
function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** As `h`, for SVG. */
function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, content] of Object.entries(attributes)) {
    if (content === null || content === undefined || content === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), content);
    else element.setAttribute(name, content === true ? "" : content);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Returns a speed-up as short as a cell wants it; the case has its interval. */
function brief(speedup) {
  return `${speedup >= 9.995 ? digits(speedup) : speedup >= 0.0995 ? speedup.toFixed(2) : digits(speedup, 2)}×`;
}

/** Returns e.g. `22 G`, to have a unit set after it. */
function large(count) {
  const units = ["", "k", "M", "G", "T", "P"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${digits(count)} ${units[unit]}`;
}

/** Returns the name of a workload's inputs where they are not the usual ones: else it has none. */
function inputName({ input }) {
  return !input || ["INPUT_DATA_MODEL_DEFAULT", "its own"].includes(input) ? "" : input.replace(/^INPUT_DATA_/, "").toLowerCase().replaceAll("_", " ");
}
