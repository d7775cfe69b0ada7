// The metrics that standings and matrix can show instead of the speed-up.

/** Returns the middle of a case's times of one kind; null where there are none. */
const middle = (item, name) => (value(item.index, name) ? median(value(item.index, name)) : null);

const hasLatency = (item) => item.quantity === "latency" && item.ms && !value(item.index, "unranked");
const isEager = (item) => /:eager(@|$)/.test(item.runner.competitor);
const coldTime = (item) => middle(item, "cold") ?? (isEager(item) ? 0 : null);

/** Returns after how many runs a faster program has saved the time that its compilation takes longer. */
function runsToPay(item) {
  const base = baselineOf(item);
  if (item.verdict !== "faster" || !hasLatency(item) || !base?.ms) return null;
  const [own, other] = [coldTime(item), coldTime(base)];
  if (own === null || other === null) return null;
  return Math.max(1, Math.ceil((own - other) / (base.ms[0] - item.ms[0])));
}

const count_ = (number) => (number < 1e4 ? number.toLocaleString("en-US") : large(number).trim());
const megabytes = (item, name) => (value(item.index, name) === null ? null : 1e6 * value(item.index, name));

/** A metric has a `name`, `of` for its number of a case or null, `show` for its text, and `isRate` if more is better. */
const METRICS = new Map([
  ["throughput", { name: "throughput", isRate: true, show: (number) => `${digits(number)}/s`, of: (item) => (hasLatency(item) && item.workload.batch_size ? (1000 * item.workload.batch_size) / item.ms[0] : null) }],
  ["cold", { name: "cold compile time", show: duration, of: (item) => middle(item, "cold") }],
  ["warm", { name: "warm compile time", show: duration, of: (item) => middle(item, "warm") }],
  ["pays", { name: "runs until compilation pays off", show: (number) => `${count_(number)} run${number === 1 ? "" : "s"}`, of: runsToPay }],
  ["memory", { name: "peak host memory", show: bytes, of: (item) => megabytes(item, "host_mb") }],
  ["device_memory", { name: "peak device memory", show: bytes, of: (item) => megabytes(item, "device_mb") }],
  ["error", { name: "relative error", show: (number) => (number ? number.toExponential(1) : "0"), of: (item) => value(item.index, "error") }],
]);
const KNOWN_METRICS = [...METRICS].filter(([, { of }]) => CASES.some((item) => isGood(item) && of(item) !== null));
const SWITCHES = [...document.querySelectorAll("select.metric")];

/** Returns the chosen metric; undefined for the speed-up. */
const metricOf = (state) => KNOWN_METRICS.find(([key]) => key === state.metric)?.[1];

/** Returns a case's number of a metric; null for failed cases. */
const numberOf = (metric, item) => (isGood(item) ? metric.of(item) : null);

/** Returns a number as a multiple of the baseline's of the same workload; null where there is none. */
function multipleOf(metric, item) {
  const base = baselineOf(item);
  const [own, other] = [numberOf(metric, item), base && numberOf(metric, base)];
  return own > 0 && other > 0 ? own / other : null;
}

function showSwitches(state) {
  for (const select of SWITCHES) fillChoice(select, [["", "speed-up"], ...KNOWN_METRICS.map(([key, { name }]) => [key, name])], state.metric);
}

for (const select of SWITCHES) select.addEventListener("change", () => setState({ metric: select.value, sort: DEFAULT_SORT }));

/** A table of each device and machine: the metric of each competitor, against the baseline's. */
function metricStandings(metric, cases) {
  const good = cases.filter((item) => numberOf(metric, item) !== null);
  if (!good.length) return [h("p", { class: "quiet" }, `No result has a value for ${metric.name}.`)];
  const groups = Map.groupBy(good, ({ workload: w }) => `${w.device}, ${w.machine}`);
  return [...groups].map(([name, group]) => h("div", { class: "contest" },
    h("h3", {}, name),
    h("p", { class: "quiet" }, `${metric.name}; ${metric.isRate ? "higher" : "lower"} is better. Ratios are geometric means over the workloads that a competitor shares with ${DATA.baseline}. They have no intervals and no verdicts.`),
    h("table", { class: "standings" },
      h("thead", {}, h("tr", {}, ["competitor", "median", "lowest", "highest", `ratio to ${DATA.baseline}`, "cases"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, metricRows(metric, group)))));
}

function metricRows(metric, group) {
  const rows_ = [...Map.groupBy(group, (item) => item.runnerName)].map(([name, items]) => {
    const numbers = items.map((item) => numberOf(metric, item));
    const logs = items.map((item) => multipleOf(metric, item)).filter((multiple) => multiple !== null).map(Math.log);
    const mean = logs.length ? Math.exp(logs.reduce((sum, log) => sum + log, 0) / logs.length) : null;
    return { name, items, numbers, mean, shared: logs.length };
  });
  const better = (mean) => (mean === null ? Infinity : metric.isRate ? -mean : mean);
  rows_.sort((a, b) => better(a.mean) - better(b.mean) || (a.name < b.name ? -1 : 1));
  return rows_.map(({ items: [item], numbers, mean, shared }) => h("tr", { class: isBaseline(item) ? "base" : null },
    h("th", { scope: "row" }, item.runner.competitor, " ", h("small", {}, item.runner.framework)),
    [median(numbers), Math.min(...numbers), Math.max(...numbers)].map((number) => h("td", {}, metric.show(number))),
    h("td", {}, isBaseline(item) ? ["1 ", h("small", {}, "baseline")] : mean === null ? "-" : [brief(mean), " ", h("small", {}, `over ${shared}`)]),
    h("td", {}, String(numbers.length))));
}
