// What is chosen in the page stands in the hash of its address, so that a link carries it.

const FILTERS = ["framework", "backend", "dtype", "batch", "tag", "device", "status"];
const FILTER_VALUES = {
  framework: (item) => [item.runner.framework],
  backend: (item) => [item.runner.competitor],
  dtype: (item) => [item.workload.data_type],
  batch: (item) => [String(item.workload.batch_size ?? "none")],
  tag: (item) => item.workload.tags,
  device: (item) => [`${item.workload.device}, ${item.workload.machine}`],
  status: (item) => [item.status, ...(item.speedup ? [item.verdict] : [])],
};
const DEFAULT_SORT = "workload";
// What the plots show: an operator, a model over batch sizes, recipes of a model, one of its shapes;
// hidden series.
const LISTED = ["q", "sort", "metric", ...FILTERS];
const CHOICES = ["op", "model", "bits", "shape", "off"];

/** Returns the state that the address holds. */
function readState() {
  const hash = location.hash.slice(1);
  const parameters = new URLSearchParams(hash.includes("=") ? hash : "");
  const state = { sort: parameters.get("sort") || DEFAULT_SORT };
  for (const name of ["q", "metric", ...FILTERS, ...CHOICES]) state[name] = parameters.get(name) || "";
  state.case = parameters.get("case") || "";
  return state;
}

/** Returns the hash of a state, without what is as usual. */
function hashOf(state) {
  const parameters = new URLSearchParams();
  for (const [name, content] of Object.entries(state)) {
    if (content && !(name === "sort" && content === DEFAULT_SORT)) parameters.set(name, content);
  }
  const found = parameters.toString();
  return found ? `#${found}` : "";
}

/** Returns the hash of the present state with some of it changed. */
const linkTo = (changes) => hashOf({ ...readState(), ...changes }) || "#all=1";

/** Changes the state; typing replaces the address, clicking adds to the history. */
function setState(changes, { replace = false } = {}) {
  const next = hashOf({ ...readState(), ...changes });
  const address = location.pathname + location.search + next;
  if (next === location.hash) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  update();
}

const isFiltered = (state) => Boolean(state.q || FILTERS.some((name) => state[name]));

/** Returns the cases that all filters let through. */
function filtered(state) {
  const terms = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = FILTERS.filter((name) => state[name]);
  if (!terms.length && !chosen.length) return CASES;
  return CASES.filter(
    (item) =>
      chosen.every((name) => FILTER_VALUES[name](item).includes(state[name])) &&
      terms.every((term) => item.haystack.includes(term)),
  );
}
