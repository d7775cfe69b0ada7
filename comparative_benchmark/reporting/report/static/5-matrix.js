// The matrix: a row for each workload, a column for each competitor and framework.
//
// Rows are made in chunks as they come into sight: thousands at once would be felt.

const CHUNK = 60;
const TABLE = document.getElementById("matrix-table");
const BODY = TABLE.tBodies[0];
const COUNT = document.getElementById("count");
const MORE = document.getElementById("more");

let rows = [];
let columns = [];
let shown = 0;
let passing = new Set();
let shownMetric;

const FIXED = [
  { key: "workload", name: "workload", of: (row) => row.workload.label },
  { key: "dtype", name: "type", of: (row) => row.workload.data_type },
  { key: "batch", name: "batch", of: (row) => row.workload.batch_size ?? Infinity },
];

/** Returns a class of colour for a speed-up, and none where the verdict is not clear. */
function shade(item) {
  if (!item.speedup || !["faster", "slower"].includes(item.verdict)) return "";
  const times_ = Math.abs(Math.log(item.speedup[0]));
  const step = [1.1, 1.5, 3].filter((limit) => times_ > Math.log(limit)).length + 1;
  return `${item.verdict === "faster" ? "f" : "s"}${step}`;
}

/** A cell of another metric: its number, and its multiple of the baseline's. */
function metricCell(item, metric) {
  const number = numberOf(metric, item), multiple = multipleOf(metric, item);
  const failed = !isGood(item);
  const first = failed ? words(item.status) : number === null ? "-" : metric.show(number);
  const second = failed || multiple === null ? "" : isBaseline(item) ? "baseline" : brief(multiple);
  return h("a", {
    class: `cell ${failed ? `st-${item.status}` : ""}${passing.has(item) ? "" : " faint"}`, href: linkTo({ case: item.id }), "data-id": item.id,
    "aria-label": `${[item.workload.label, inputName(item.workload), item.runnerName].filter(Boolean).join(", ")}: ${first}${second ? `, ${second}${isBaseline(item) ? "" : ` the ${metric.name} of ${DATA.baseline}`}` : ""}`,
  },
  h("span", { class: "first" }, failed ? [h("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[item.status] ?? "✖"), " "] : null, first),
  h("span", { class: "ms" }, second));
}

function cellOf(item) {
  const failed = !isGood(item);
  const glyph = item.rate ? "" : GLYPHS[failed ? item.status : item.verdict] ?? "✖";
  const classes = ["cell", failed ? `st-${item.status}` : `v-${item.verdict}`, shade(item)];
  if (!passing.has(item)) classes.push("faint");
  const rate = item.rate ? `${digits(item.rate[0], 4)} ${item.units}` : null;
  const first = rate ? digits(item.rate[0], 4) : failed ? words(item.status) : item.speedup ? brief(item.speedup[0]) : words(item.verdict);
  const change = textOf(item.index, "change_verdict");
  const changed = change === "slower" || change === "faster" ? `${GLYPHS[change]} ${percent(value(item.index, "change")[0])}` : "";
  return h("a", {
    class: classes.join(" ").trim(), href: linkTo({ case: item.id }), "data-id": item.id,
    "aria-label": `${[item.workload.label, inputName(item.workload), item.runnerName].filter(Boolean).join(", ")}: ${rate ?? (failed ? words(item.status) : `${item.verdict} ${item.speedup ? first : ""} ${item.ms ? `${digits(item.ms[0])} ms` : ""}`)}${changed ? `, ${changed} since the baseline results` : ""}`,
  },
  h("span", { class: "first" }, h("span", { class: "glyph", "aria-hidden": "true" }, glyph), " ", first),
  h("span", { class: "ms" }, rate ? item.units : item.ms ? duration(item.ms[0]) : failed ? "" : "-", item.status === "agreed" ? " agreed" : "", changed ? h("span", { class: `delta d-${change}` }, ` ${changed}`) : null));
}

function rowOf(row, position) {
  const { workload } = row;
  return h("tr", { "aria-rowindex": position + 2 },
    h("th", { scope: "row" }, workload.label, h("small", {}, ` ${[workload.device, inputName(workload), workload.quantity === "latency" ? "" : workload.quantity].filter(Boolean).join(", ")}`)),
    h("td", { class: "fact" }, workload.data_type),
    h("td", { class: "fact" }, workload.batch_size === null ? "-" : String(workload.batch_size)),
    columns.map((name) => {
      const item = row.cells.get(name);
      return h("td", { class: item ? null : "none", "data-label": name }, item ? (shownMetric ? metricCell(item, shownMetric) : cellOf(item)) : h("span", { class: "quiet", title: "not run" }, "·"));
    }));
}

function showMore(most = CHUNK) {
  const next = rows.slice(shown, shown + most);
  BODY.append(...next.map((row, position) => rowOf(row, shown + position)));
  shown += next.length;
  MORE.hidden = shown >= rows.length;
  MORE.textContent = `Show more (${(rows.length - shown).toLocaleString("en-US")} rows left)`;
}

function headings(state) {
  const heading = (key, label, title) => {
    const own = state.sort.replace(/^-/, "") === key;
    const direction = own ? (state.sort.startsWith("-") ? "descending" : "ascending") : "none";
    const arrow = { ascending: "↑", descending: "↓", none: "" }[direction];
    return h("th", { scope: "col", "aria-sort": own ? direction : null },
      h("button", { type: "button", class: "sort", "data-sort": key, title, onclick: () => sortBy(key) }, label, h("span", { class: "arrow", "aria-hidden": "true" }, arrow)));
  };
  TABLE.tHead.replaceChildren(h("tr", { "aria-rowindex": 1 },
    FIXED.map(({ key, name }) => heading(key, name, `Sort by ${name}`)),
    columns.map((name) => heading(name, runnerLabel(name), `Sort by the ${shownMetric?.name ?? "speed-up"} of ${name}`))));
}

function runnerLabel(name) {
  const { competitor, framework } = RUNNERS.get(name);
  return h("span", {}, competitor, h("small", {}, framework));
}

/** Numbers start with the largest, texts with the first; a second click turns the order round. */
function sortBy(key) {
  const { sort } = readState();
  const fresh = FIXED.some((fixed) => fixed.key === key) ? key : `-${key}`;
  const turned = fresh.startsWith("-") ? key : `-${key}`;
  setState({ sort: sort === fresh ? turned : fresh });
  document.querySelector(`button.sort[data-sort="${CSS.escape(key)}"]`)?.focus();
}

function sorted(found, sort) {
  const descending = sort.startsWith("-");
  const key = sort.replace(/^-/, "");
  const fixed = FIXED.find((item) => item.key === key);
  const of = fixed ? fixed.of : (row) => {
    const item = row.cells.get(key);
    if (shownMetric) return item ? numberOf(shownMetric, item) : null;
    return !item ? null : item.speedup ? item.speedup[0] : item.ms && isBaseline(item) ? -item.ms[0] : null;
  };
  const natural = (a, b) => a.workload.label.localeCompare(b.workload.label, "en", { numeric: true }) || a.workload.device.localeCompare(b.workload.device);
  return found.toSorted((a, b) => {
    const [left, right] = [of(a), of(b)];
    // Rows without a value stay at the end in either direction.
    if (left === null || right === null) return (left === null) - (right === null) || natural(a, b);
    const order = typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right;
    return (descending ? -order : order) || natural(a, b);
  });
}

function showMatrix(state, cases) {
  passing = new Set(cases);
  shownMetric = metricOf(state);
  document.getElementById("scale").hidden = Boolean(shownMetric);
  document.getElementById("scale-of-metric").hidden = !shownMetric;
  document.getElementById("scale-of-metric").textContent = shownMetric ? `${shownMetric.name}, and its ratio to ${DATA.baseline}; ${shownMetric.isRate ? "higher" : "lower"} is better. Cells have no colour because there are no verdicts.` : "";
  const wanted = new Set(cases.map((item) => item.row));
  const names = new Set(cases.map((item) => item.runnerName));
  const byRow = new Map();
  for (const item of CASES) {
    if (!wanted.has(item.row)) continue;
    if (!byRow.has(item.row)) byRow.set(item.row, { workload: item.workload, cells: new Map() });
    byRow.get(item.row).cells.set(item.runnerName, item);
  }
  // The baseline stays in sight: the others are against it.
  columns = [...RUNNERS.keys()].filter((name) => names.has(name) || (wanted.size && RUNNERS.get(name).competitor === DATA.baseline));
  const isBase = (name) => RUNNERS.get(name).competitor === DATA.baseline;
  columns.sort((a, b) => isBase(b) - isBase(a) || (a < b ? -1 : 1));
  rows = sorted([...byRow.values()], state.sort);
  shown = 0;
  BODY.replaceChildren();
  headings(state);
  TABLE.setAttribute("aria-rowcount", rows.length + 1);
  showMore();
  const plural = (count, name) => `${count.toLocaleString("en-US")} ${name}${count === 1 ? "" : "s"}`;
  COUNT.textContent = `${plural(cases.length, "result")} of ${CASES.length.toLocaleString("en-US")}, ${plural(rows.length, "workload")}`;
  document.getElementById("nothing").hidden = rows.length > 0;
  TABLE.hidden = rows.length === 0;
}

new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting) && !MORE.hidden) showMore();
}, { rootMargin: "600px" }).observe(MORE);
MORE.addEventListener("click", () => showMore());
addEventListener("beforeprint", () => showMore(rows.length));

// Arrow keys go from cell to cell, as in a spreadsheet; Tab does as anywhere.
BODY.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const cell = event.target.closest("td");
  if (!step || !cell || event.altKey || event.ctrlKey || event.metaKey) return;
  let row = cell.parentElement, column = cell.cellIndex;
  for (;;) {
    row = step[0] > 0 ? row.nextElementSibling : step[0] < 0 ? row.previousElementSibling : row;
    column += step[1];
    const target = row?.cells[column];
    if (!target) return;
    const link = target.querySelector("a");
    if (link) {
      event.preventDefault();
      link.focus();
      return;
    }
  }
});
