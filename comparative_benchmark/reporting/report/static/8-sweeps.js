// Operators over shapes, models over batch sizes, and the speed of recipes by their signal.

const SWEEPS = document.getElementById("sweeps");
const BITS = document.getElementById("bits");
const FIRST_PANELS = 4;
let allPanels = false;

const several = (panels, name) => new Set(panels.map((panel) => panel[name])).size > 1;

/** Returns a panel's name, with its machine where there are others. */
function panelName(panels, panel) {
  const where = ["device", "machine"].filter((name) => several(panels, name)).map((name) => panel[name]);
  return [panel.name, panel.quantity === "latency" ? "" : panel.quantity, ...where].filter(Boolean).join(", ");
}

for (const panels of [DATA.sweeps, DATA.bits, DATA.batches]) for (const panel of panels) panel.title = panelName(panels, panel);
const SERIES = [...new Set(DATA.sweeps.flatMap((panel) => panel.series.map(([name]) => name)))].sort();
const STACKS = [...new Set(DATA.bits.flatMap((panel) => panel.stacks))].sort();

/** Says all of a point; the first line is its name. */
function said(item, { speedup, verdict, replicates }, others) {
  return [
    item.workload.label, item.runnerName,
    `${GLYPHS[verdict]} ${verdict}, ${times(speedup)} (98 %: ${limits(speedup, replicates)})`,
    item.ms ? `${withInterval(item.ms)} ms` : null, ...others,
  ].filter(Boolean);
}

function sweepPlot(width, panel, off, shown) {
  // As in the matrix: who has nothing that passes the filters is not there.
  const passes = ([name, points]) => !off.has(name) && points.some(([index]) => shown.has(CASES[index]));
  const series = panel.series.filter(passes).map(([name, points, line]) => ({
    name, line, style: SERIES.indexOf(name),
    points: points.map(([index, x]) => {
      const item = CASES[index], share = value(index, "share");
      const roof = share === null ? null : `${digits(100 * share, 2)} % of the roof`;
      return { x, y: item.speedup, verdict: item.verdict, id: item.id, faint: !shown.has(item), says: said(item, item, [roof]) };
    }),
  }));
  const places = panel.series.flatMap(([, points]) => points.map(([, x]) => x));
  const count = new Set(panel.series.flatMap(([, points]) => points.map(([index]) => CASES[index].row))).size;
  const many = `${count} shape${count === 1 ? "" : "s"}`;
  return h("figure", { class: "panel" },
    h("h3", {}, panel.title, h("small", {}, ` ${many}`)),
    places.length
      ? seriesPlot(width, 300, { x: { domain: padded(places, true), log: true }, xLabel: `${panel.axis.replaceAll(" ", " × ")} (log)`, yLabel: "speed-up (log)", label: `${panel.title}: speed-up over ${DATA.baseline} on ${many}`, reference: 1 }, series)
      : h("p", { class: "quiet" }, "No shape has a speed-up."),
    notDrawn(panel.left_out.map((index) => ({ item: CASES[index], why: whyNot(CASES[index]) }))));
}

function whyNot(item) {
  if (!isGood(item)) return `${words(item.status)}: ${textOf(item.index, "reason")}`;
  return `${textOf(item.index, "why")}${applied(item.index) ? ", see Fewer bits" : ""}`;
}

function showSweeps(state, cases) {
  if (!SWEEPS) return;
  const shown = new Set(cases);
  const members = (panel) => [...panel.series.flatMap(([, points]) => points.map(([index]) => index)), ...panel.left_out];
  const passing = DATA.sweeps.filter((panel) => members(panel).some((index) => shown.has(CASES[index])));
  fillChoice(document.getElementById("op"), [...(passing.length > 1 ? [["", `all ${passing.length}`]] : []), ...passing.map((panel) => [panel.title, panel.title])], state.op);
  const chosen = passing.filter((panel) => panel.title === state.op);
  const panels = chosen.length ? chosen : passing;
  const off = new Set(state.off.split("|"));
  const drawn = allPanels ? panels : panels.slice(0, FIRST_PANELS);
  const found = new Map(SERIES.map((name) => [name, []]));
  for (const panel of panels) for (const [name, points] of panel.series) found.get(name).push(...points.map(([index]) => CASES[index]).filter((item) => shown.has(item)));
  const counts = (name) => {
    const won = (verdict) => found.get(name).filter((item) => item.verdict === verdict).length;
    return h("small", {}, ` ▲ ${won("faster")} ▼ ${won("slower")} of ${found.get(name).length}`);
  };
  SWEEPS.querySelector(".toggles").replaceChildren(...seriesLegend(SERIES.filter((name) => found.get(name).length), (name) => SERIES.indexOf(name), counts, off));
  const room = SWEEPS.clientWidth;
  const width = room > 900 && drawn.length > 1 ? (room - 24) / 2 : room;
  SWEEPS.querySelector(".panels").replaceChildren(...drawn.map((panel) => sweepPlot(Math.floor(Math.min(width, 1100)) - 26, panel, off, shown)));
  const more = document.getElementById("all-panels");
  more.hidden = drawn.length === panels.length;
  more.textContent = `Show all ${panels.length} operators`;
}

const BATCHES = document.getElementById("batches");
const BATCH_SERIES = [...new Set(DATA.batches.flatMap((panel) => panel.cases.map((index) => CASES[index].runnerName)))].sort();
const QUANTITIES = [
  ["latency, ms", ([estimate, low, high]) => [estimate, low, high]],
  ["samples per second", ([estimate, low, high], batch) => [estimate, high, low].map((ms) => (ms ? (1000 * batch) / ms : null))],
];

/** Latency and throughput of a model by batch size: two plots with a line for each competitor. */
function batchPlots(width, panel, off, shown) {
  const items = panel.cases.map((index) => CASES[index]).filter((item) => item.ms && isGood(item) && !off.has(item.runnerName));
  const groups = [...Map.groupBy(items, (item) => item.runnerName)].filter(([, group]) => group.some((item) => shown.has(item)));
  const drawn = groups.flatMap(([, group]) => group);
  if (!drawn.length) return h("p", { class: "quiet" }, "No result has a latency.");
  const sizes = drawn.map((item) => item.workload.batch_size);
  const x = { domain: padded(sizes, true), log: true, ticks: [...new Set(sizes)] };
  return QUANTITIES.map(([yLabel, y]) => {
    const series = groups.map(([name, group]) => {
      const points = group.toSorted((a, b) => a.workload.batch_size - b.workload.batch_size).map((item) => ({
        x: item.workload.batch_size, y: y(item.ms, item.workload.batch_size), verdict: item.verdict, id: item.id,
        faint: !shown.has(item), says: [item.workload.label, item.runnerName, `batch ${item.workload.batch_size}: ${digits(y(item.ms, item.workload.batch_size)[0])} ${yLabel}`],
      }));
      return { name, style: BATCH_SERIES.indexOf(name), points, line: points.map((point) => [point.x, point.y[0]]) };
    });
    return h("figure", { class: "panel" }, seriesPlot(width, 300, { x, xLabel: "batch size (log)", yLabel: `${yLabel} (log)`, label: `${panel.title}: ${yLabel} by batch size` }, series));
  });
}

function showBatches(state, cases) {
  if (!BATCHES) return;
  const shown = new Set(cases);
  const panels = DATA.batches.filter((panel) => panel.cases.some((index) => shown.has(CASES[index])));
  fillChoice(document.getElementById("model"), panels.map((panel) => [panel.title, panel.title]), state.model);
  const panel = panels.find((one) => one.title === state.model) || panels[0];
  BATCHES.querySelector(".none").hidden = Boolean(panel);
  BATCHES.querySelector(".choice").replaceChildren(...(panel?.choice ?? []).map((line) => h("p", {}, line)));
  const off = new Set(state.off.split("|"));
  const names = panel ? [...new Set(panel.cases.map((index) => CASES[index].runnerName))].sort() : [];
  BATCHES.querySelector(".toggles").replaceChildren(...seriesLegend(names, (name) => BATCH_SERIES.indexOf(name), () => "", off));
  const room = BATCHES.clientWidth;
  const width = Math.floor(Math.min(room > 900 ? (room - 24) / 2 : room, 1100)) - 26;
  BATCHES.querySelector(".panels").replaceChildren(...(panel ? [batchPlots(width, panel, off, shown)].flat() : []));
}

const applied = (index) => value(index, "recipe");

/** Returns how much of its weights' bytes a recipe leaves; of its file's where the stack tells no more. */
function bytesLeft(index, own) {
  const recipe = applied(index);
  if (recipe && recipe[0]) return `${digits((100 * recipe[1]) / recipe[0], 2)} % of the bytes (${bytes(recipe[1])})`;
  const sizes = [value(index, "program_bytes"), own === null ? null : value(own, "program_bytes")];
  return sizes[0] && sizes[1] ? `${digits((100 * sizes[0]) / sizes[1], 2)} % of the file (${bytes(sizes[0])})` : null;
}

const layersChanged = (index) => (applied(index)?.[2] != null ? `${applied(index)[2]} of ${applied(index)[3]} layers` : null);

/** Recipes of one shape, as marks and as rows of a table. */
function ofShape(panel, shape) {
  return shape.trades.map((trade) => {
    const item = CASES[trade.case], x = value(trade.case, "sqnr");
    const facts_ = [x === null ? null : `${digits(x)} dB`, bytesLeft(trade.case, trade.own), layersChanged(trade.case)];
    return { ...trade, x, item, id: item.id, stack: panel.stacks[trade.stack], why: text(trade.why), facts: facts_,
      says: trade.speedup ? said(item, trade, [...facts_, words(item.status)]) : [] };
  });
}

/** Means over the shapes that all recipes have. */
function ofMeans(panel) {
  return panel.means.map((mean) => {
    const facts_ = [`${digits(mean.signal)} dB`, `mean of ${mean.shapes} shapes`];
    const told = `${GLYPHS[mean.verdict]} ${mean.verdict}, ${times(mean.speedup)} (98 %: ${limits(mean.speedup, mean.replicates)})`;
    return { ...mean, x: mean.signal, id: null, stack: panel.stacks[mean.stack], facts: facts_, says: [panel.title, mean.recipe, told, ...facts_] };
  });
}

function bitsTable(rows_, isMean) {
  const cells = (row) => (row.speedup
    ? [`${times(row.speedup)} ${limits(row.speedup, row.replicates)}, ${row.verdict}`, ...row.facts]
    : [h("span", { class: "quiet why" }, shortened(row.why || "", 200)), ...row.facts]);
  const heads = ["recipe", "stack", "speed-up over the stack", "signal", ...(isMean ? ["basis"] : ["bytes left", "changed"])];
  return h("div", { class: "scroller" }, h("table", { class: "trades" },
    h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows_.map((row) => h("tr", {},
      h("th", { scope: "row" }, row.id ? h("a", { href: linkTo({ case: row.id }) }, row.recipe) : row.recipe, row.front ? h("small", {}, " frontier") : null),
      h("td", {}, row.stack), cells(row).map((cell) => h("td", {}, cell ?? "-")))))));
}

function bitsPlot(width, panel, rows_, off) {
  const drawn = rows_.filter((row) => row.speedup && !off.has(row.stack));
  const series = panel.stacks.filter((stack) => !off.has(stack)).map((stack) => {
    const points = drawn.filter((row) => row.stack === stack).sort((a, b) => a.x - b.x);
    return { name: stack, style: STACKS.indexOf(stack), points: points.map((row) => ({ ...row, y: row.speedup, text: row.recipe })),
      line: points.filter((row) => row.front).map((row) => [row.x, row.speedup[0]]) };
  });
  if (!drawn.length) return h("p", { class: "quiet" }, "No recipe has both a speed-up and a signal-to-noise ratio.");
  const signals = drawn.map((row) => row.x);
  // The names of marks stand to their right.
  const domain = padded([...signals, Math.max(...signals) + 0.15 * Math.max(10, Math.max(...signals) - Math.min(...signals))], false, 0.1);
  return h("figure", { class: "panel" }, seriesPlot(width, 340, { x: { domain }, xLabel: "signal-to-noise ratio, dB", yLabel: "speed-up over its stack (log)", label: `${panel.title}: speed-up by signal for ${drawn.length} recipes`, reference: 1 }, series));
}

function showBits(state, cases) {
  if (!BITS) return;
  const shown = new Set(cases);
  const passes = (shape) => shape.trades.some((trade) => shown.has(CASES[trade.case]));
  const panels = DATA.bits.filter((panel) => panel.shapes.some(passes));
  fillChoice(document.getElementById("bits-of"), panels.map((panel) => [panel.title, panel.title]), state.bits);
  const panel = panels.find((one) => one.title === state.bits) || panels[0];
  const body = BITS.querySelector(".panels"), toggles = BITS.querySelector(".toggles");
  BITS.querySelector(".none").hidden = Boolean(panel);
  if (!panel) {
    body.replaceChildren();
    toggles.replaceChildren();
    return;
  }
  const means = panel.means.length ? [["", `means over ${panel.means[0].shapes} shapes`]] : [];
  fillChoice(document.getElementById("shape"), [...means, ...panel.shapes.map(({ label }) => [label, label])], state.shape);
  const chosen = panel.shapes.find(({ label }) => label === state.shape) || (means.length ? null : panel.shapes[0]);
  const rows_ = chosen ? ofShape(panel, chosen) : ofMeans(panel);
  const off = new Set(state.off.split("|"));
  toggles.replaceChildren(...seriesLegend(panel.stacks, (name) => STACKS.indexOf(name), () => "", off));
  const without = chosen ? [] : panel.shapes.flatMap((shape) => ofShape(panel, shape)).filter((row) => !row.speedup);
  body.replaceChildren(bitsPlot(Math.min(BITS.clientWidth, 1000) - 26, panel, rows_, off), bitsTable(rows_, !chosen), notDrawn(without) ?? "");
}

for (const [id, name] of [["op", "op"], ["model", "model"], ["bits-of", "bits"], ["shape", "shape"]]) {
  const select = document.getElementById(id);
  // Another operator has other shapes.
  select?.addEventListener("change", () => setState({ [name]: select.value, ...(name === "bits" ? { shape: "" } : {}) }));
}

function showAllPanels() {
  allPanels = true;
  showSweeps(readState(), filtered(readState()));
}

document.getElementById("all-panels")?.addEventListener("click", showAllPanels);
addEventListener("beforeprint", () => { if (SWEEPS) showAllPanels(); });
