// Who wins among the cases that the filters let through: as `standings.py` does for all of them.

const COVERAGE = 0.5;

/** Geometric mean of speed-ups with its interval, as `geomean` of standings.py: errors add up. */
function geomean(cases, competitors) {
  if (!cases.length) return null;
  let centre = 0, variance = 0, squares = 0, latency = 0;
  const replicates = Math.min(...cases.map((item) => item.replicates));
  for (const { speedup: [estimate], spread: [part, degrees], ms } of cases) {
    centre += Math.log(estimate);
    variance += part;
    squares += part ** 2 / degrees;
    latency += Math.log(ms[0]);
  }
  const count = cases.length;
  const around = (probability) => {
    const width = variance && studentQuantile(probability, variance ** 2 / squares) * Math.sqrt(variance);
    return [centre, centre - width, centre + width].map((sum) => Math.exp(sum / count));
  };
  const interval = around(DATA.probability);
  const pairs = Math.max(1, (competitors * (competitors - 1)) / 2);
  const amongAll = around(1 - (1 - DATA.probability) / pairs);
  return {
    cases: count,
    replicates,
    interval,
    ms: Math.exp(latency / count),
    side: isDoubtful(cases, interval, replicates, amongAll) ? "even" : interval[0] > 1 ? "ahead" : "behind",
  };
}

/** Returns whether a mean determines no winner, as `_doubt` of standings.py. */
function isDoubtful(cases, [estimate, low, high], replicates, amongAll) {
  const [disturbed, noise, compiling, close, enough] = DATA.doubt;
  const threshold = cases[0].quantity === "latency" ? noise : compiling;
  const distance = Math.max(estimate, 1 / estimate);
  if (cases.filter((item) => value(item.index, "disturbed")).length >= disturbed * cases.length) return true;
  if (low <= 1 && high >= 1) return true;
  if (cases.length === 1) return !["faster", "slower"].includes(cases[0].verdict);
  return replicates < DATA.min_processes || distance <= 1 + threshold || (replicates < enough && distance <= close)
    || (amongAll[1] <= 1 && amongAll[2] >= 1);
}

/** Quantile of Student's t: where the area under cos(angle)^(degrees - 1) is that share of all. */
function studentQuantile(probability, degrees) {
  // With many degrees all of it lies near 0.
  const last = Math.min(Math.PI / 2, 12 / Math.sqrt(degrees));
  const parts = 400;
  const area = (end) => {
    const step = end / parts;
    let sum = 1 + Math.cos(end) ** (degrees - 1);
    for (let i = 1; i < parts; i++) sum += (i % 2 ? 4 : 2) * Math.cos(i * step) ** (degrees - 1);
    return sum * step / 3;
  };
  const wanted = (2 * probability - 1) * area(last);
  let [low, high] = [0, last];
  for (let i = 0; i < 45; i++) {
    const middle = (low + high) / 2;
    [low, high] = area(middle) < wanted ? [middle, high] : [low, middle];
  }
  return Math.sqrt(degrees) * Math.tan(low);
}

/** Returns the standings of each device, machine and quantity, with most cases first. */
function contests(cases) {
  const groups = Map.groupBy(cases.filter((item) => !item.units), ({ workload: w }) => `${w.device}, ${w.machine}${w.quantity === "latency" ? "" : `, ${w.quantity}`}`);
  const isUnable = (item) => item.status === "unsupported" || item.verdict === "unsupported";
  return [...groups].map(([name, all]) => {
    // Without competitors that support none of the cases, as in standings.py.
    const able = new Set(all.filter((item) => !isUnable(item)).map((item) => item.runnerName));
    const group = all.filter((item) => able.has(item.runnerName));
    const runners = [...Map.groupBy(group, (item) => item.runnerName)].map(([runner, items]) => ({
      name: runner,
      runner: items[0].runner,
      isBaseline: isBaseline(items[0]),
      cases: items.filter((item) => !isUnable(item)).length,
      // A recipe is not in the standings: its speed-up is the effect of fewer bits.
      compared: new Map(items.filter((item) => item.speedup && !value(item.index, "arithmetic")).map((item) => [item.row, item])),
    }));
    const most = Math.max(0, ...runners.map((runner) => runner.compared.size));
    const ranked = runners.filter((runner) => runner.compared.size >= Math.max(1, COVERAGE * most));
    const shared = ranked.length
      ? [...ranked[0].compared.keys()].filter((row) => ranked.every((runner) => runner.compared.has(row)))
      : [];
    const competitors = 1 + runners.filter((runner) => runner.compared.size).length;
    for (const runner of runners) {
      runner.own = geomean([...runner.compared.values()], competitors);
      runner.common = ranked.includes(runner) ? geomean(shared.map((row) => runner.compared.get(row)), competitors) : null;
      runner.mean = runner.common || runner.own;
      const ranking = shared.length ? runner.common : runner.own;
      runner.rank = runner.isBaseline ? 1 : ranking ? ranking.interval[0] : runner.own ? runner.own.interval[0] - 1e9 : -Infinity;
    }
    runners.sort((a, b) => b.rank - a.rank || (a.name < b.name ? -1 : 1));
    return { name, runners, common: shared.length, cases: new Set(group.map((item) => item.row)).size };
  }).filter((contest) => contest.runners.length).sort((a, b) => b.cases - a.cases);
}

/** The table of one contest, with the same parts as the one in the page's template. */
function standingsTable(contest) {
  const intervals = contest.runners.filter((runner) => runner.mean).map((runner) => runner.mean.interval);
  const ends = [1, ...intervals.flat().filter((number) => number > 0 && Number.isFinite(number))];
  const [low, high] = [Math.min(...ends) / 1.1, Math.max(...ends) * 1.1];
  const place = (number) => `${Math.min(100, Math.max(0, (100 * Math.log(number / low)) / Math.log(high / low))).toFixed(2)}%`;
  return h("div", { class: "contest" },
    h("h3", {}, contest.name),
    h("p", { class: "quiet" }, commonText(contest)),
    h("table", { class: "standings" },
      h("thead", {}, h("tr", {}, ["competitor", "", "speed-up", "cases", "geomean", "verdicts"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, contest.runners.map((runner) => standingRow(runner, place)))));
}

function commonText(contest) {
  if (!contest.common) return `workloads: ${contest.cases}; in none does every ranked competitor have a speed-up, so any means cover different workloads`;
  return `over the workloads in which every ranked competitor has a speed-up: ${contest.common} of ${contest.cases}`;
}

function standingRow(runner, place) {
  const [name, framework] = [runner.runner.competitor, runner.runner.framework];
  const counts = new Map([["faster", 0], ["slower", 0], ["same", 0], ["unclear", 0]]);
  for (const item of runner.compared.values()) counts.set(item.verdict, (counts.get(item.verdict) || 0) + 1);
  const head = h("th", { scope: "row" }, name, " ", h("small", {}, `${framework}${runner.runner.level === "compiler_level" ? ", compiler level" : ""}`));
  if (runner.isBaseline) {
    return h("tr", { class: "base" }, head, forest(null, place), h("td", {}, "1 ", h("small", {}, "baseline")), h("td", {}, String(runner.cases)), h("td"), h("td"));
  }
  const mean = runner.mean;
  return h("tr", { class: runner.common ? null : "unranked" }, head, forest(mean, place),
    h("td", {}, mean ? [times(mean.interval), " ", h("small", {}, limits(mean.interval, mean.replicates))] : "-"),
    h("td", {}, mean ? `${mean.cases} of ${runner.cases}` : `0 of ${runner.cases}`),
    h("td", {}, mean ? duration(mean.ms) : "-"),
    h("td", { class: "counts" }, [...counts].filter(([, count]) => count).map(([verdict, count]) => h("span", { class: `v-${verdict}`, title: verdict }, `${GLYPHS[verdict]} ${count}`))));
}

function forest(mean, place) {
  const image = s("svg", { class: "forest", width: "100%", height: 22, "aria-hidden": "true" },
    s("line", { class: "one", x1: place(1), x2: place(1), y1: 0, y2: 22 }));
  if (mean) {
    const [estimate, low, high] = mean.interval;
    image.append(
      s("line", { class: `range ${mean.side}`, x1: place(low), x2: place(high), y1: 11, y2: 11 }),
      s("circle", { class: mean.side, cx: place(estimate), cy: 11, r: 5 }));
  }
  return h("td", { class: "forest" }, image);
}

/** Shows the standings of the filtered cases; those of all are as the page came with them. */
const STANDINGS = document.getElementById("standings");
const ALL_STANDINGS = [...STANDINGS.childNodes];

function showStandings(state, cases) {
  const metric = metricOf(state);
  if (!isFiltered(state)) {
    STANDINGS.replaceChildren(...(metric ? metricStandings(metric, cases) : ALL_STANDINGS));
    return;
  }
  // A speed-up needs its baseline, but not that the filter lets it through.
  const found = metric ? metricStandings(metric, cases) : contests(cases).map(standingsTable);
  STANDINGS.replaceChildren(
    h("p", { class: "note" }, `Only results that match the filters: ${cases.length.toLocaleString("en-US")} of ${CASES.length.toLocaleString("en-US")} results. `,
      h("button", { type: "button", onclick: clearFilters }, "Show all")),
    ...found);
}
