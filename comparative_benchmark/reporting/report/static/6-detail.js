// One case: everything that its result holds, in a dialog that has an address of its own.

const DIALOG = document.getElementById("detail");
const DETAIL = document.getElementById("detail-body");
let opener = null;

function facts(rowsOfFacts) {
  const known = rowsOfFacts.filter(([, content]) => content !== null && content !== undefined && content !== "");
  return known.length ? h("dl", {}, known.map(([name, content]) => [h("dt", {}, name), h("dd", {}, content)])) : null;
}

function part(title, ...children) {
  const content = children.flat().filter(Boolean);
  return content.length ? h("section", {}, h("h3", {}, title), content) : null;
}

const figure = (image, caption) => h("figure", {}, image, h("figcaption", {}, caption));

function verdictPart(item) {
  const why = textOf(item.index, "why");
  if (!isGood(item)) {
    const traceback = textOf(item.index, "traceback");
    return part("What happened",
      h("p", { class: `verdict st-${item.status}` }, h("b", {}, words(item.status)), textOf(item.index, "phase") ? ` in ${textOf(item.index, "phase")}` : ""),
      h("p", { class: "reason" }, textOf(item.index, "reason")),
      traceback ? h("details", {}, h("summary", {}, "Traceback"), h("pre", {}, traceback)) : null,
      facts([["log file", textOf(item.index, "log")]]));
  }
  if (item.units) return ratePart(item);
  const agreed = item.status === "agreed"
    ? h("p", { class: "quiet" }, "Agreed with a plain run in the same data type, which proves less than a float64 run.")
    : null;
  if (isBaseline(item)) return part("Verdict", agreed, h("p", { class: "verdict" }, "This is the baseline for speed-ups."));
  if (!item.speedup) return part("Verdict", agreed, h("p", { class: "verdict" }, h("b", {}, words(item.verdict)), why ? `: ${why}` : ""));
  return part("Verdict",
    agreed,
    h("p", { class: `verdict v-${item.verdict}` },
      h("b", {}, `${GLYPHS[item.verdict]} ${item.verdict}`), ` ${times(item.speedup)} as fast as ${DATA.baseline}, 98 % interval ${limits(item.speedup, item.replicates)}`),
    h("p", { class: "quiet" }, `Reason: ${why || ""}; ${value(item.index, "paired") ? "measured in paired rounds of one race." : "measured at different times."}`));
}

/** What a script told of its own speed: it is compared with its own past alone. */
function ratePart(item) {
  const losses = value(item.index, "losses");
  return part("Rate reported by the script",
    h("p", { class: "verdict" }, h("b", {}, `${withInterval(item.rate)} ${item.units}`), item.rate[1] === null ? ", one replicate" : ", 95 % interval over replicates"),
    facts([
      ["loss, first and last", losses && losses.map((loss) => digits(loss)).join(" and ")],
      ...value(item.index, "jobs").map(([tag, replicate, told, warmup, cpus]) => [`${text(tag)}, replicate ${replicate + 1}`, `${told} rates, ${warmup} of them warm-up${cpus ? `, on ${cpus} dedicated CPU${cpus === 1 ? "" : "s"}` : ""}`]),
    ]));
}

function samplesPart(item, width) {
  if (!item.ms || !value(item.index, "dots")) return null;
  const base = baselineOf(item);
  const items = [item, base !== item && base?.ms && value(base.index, "dots") ? base : null].filter(Boolean);
  const unit = item.quantity;
  const [low, high] = value(item.index, "range");
  const [count, dots] = [value(item.index, "samples"), value(item.index, "shown")];
  const thinned = dots < count
    ? `The plot shows ${dots} of ${count.toLocaleString("en-US")} samples, chosen at random with a fixed seed, including the fastest and slowest of each process. The numbers use all samples. `
    : `All ${count} samples. `;
  return part("Samples",
    figure(samplePlot(width, items, unit), [
      thinned, "Lines are estimates; bands are their 95 % intervals. ",
      items.length > 1 ? [h("span", { class: "key own" }), ` ${item.runnerName} `, h("span", { class: "key other" }), ` ${base.runnerName}`] : null,
    ]),
    facts([
      [`${unit}, 95 %`, `${withInterval(item.ms)} ms, ${value(item.index, "processes")} process${value(item.index, "processes") === 1 ? ` (the interval is ${DATA.within_one_process})` : "es"}`],
      ["baseline", items.length > 1 ? `${withInterval(base.ms)} ms` : null],
      ["median", value(item.index, "median") && `${digits(value(item.index, "median"))} ms, median absolute deviation ${digits(value(item.index, "mad"), 2)} ms`],
      ["range", `${digits(low)} to ${digits(high)} ms`],
      ...["p90", "p95", "p99"].map((name) => [name, value(item.index, name) && `${digits(value(item.index, name))} ms`]),
      ["stop reason", words(textOf(item.index, "stop"))],
      ["disturbed", { 1: `yes: ${textOf(item.index, "contention")}`, 0: "no" }[value(item.index, "contended")] ?? `unknown${textOf(item.index, "contention") ? `: ${textOf(item.index, "contention")}` : ""}`],
    ]));
}

const manyTimes = (numbers) => (numbers ? `${duration(median(numbers))}${numbers.length > 1 ? ` (${numbers.length} processes, ${duration(Math.min(...numbers))} to ${duration(Math.max(...numbers))})` : ""}` : null);

function compilePart(item) {
  if (item.units) return null;
  const phases = value(item.index, "phase_ms");
  const eager = isEager(item), pays = runsToPay(item);
  const longest = Math.max(1e-9, ...(phases || []).filter((ms) => typeof ms === "number"));
  return part("Compile time and phases",
    facts([
      ["cold, empty caches", manyTimes(value(item.index, "cold")) || (eager ? "none: nothing is compiled" : "not measured")],
      ["warm, same caches", manyTimes(value(item.index, "warm")) || (eager ? null : "not measured")],
      ["compilation pays off", pays && `after ${count_(pays)} run${pays === 1 ? "" : "s"}, compared with ${DATA.baseline}`],
    ]),
    phases ? h("table", { class: "phases" }, h("caption", {}, "Phases of the first process"),
      h("tbody", {}, phases.map((ms, position) => (ms === null ? null : h("tr", {}, h("th", { scope: "row" }, words(DATA.phases[position])),
        h("td", {}, typeof ms === "number" ? duration(ms) : "not measurable"),
        h("td", { class: "bar" }, typeof ms === "number" ? s("svg", { width: "100%", height: 10, "aria-hidden": "true" }, s("rect", { width: `${(100 * ms) / longest}%`, height: 10, rx: 2 })) : null)))))) : null);
}

function memoryPart(item) {
  const base = baselineOf(item);
  const against = (name) => {
    const [own, other] = [value(item.index, name), base && base !== item ? value(base.index, name) : null];
    return own === null ? null : `${bytes(own * 1e6)}${other ? `, ${digits(own / other, 2)} × the baseline's ${bytes(other * 1e6)}` : ""}`;
  };
  const recipe = value(item.index, "recipe");
  return part("Peak memory", facts([["host", against("host_mb")], ["device", against("device_mb")], ["program", value(item.index, "program_bytes") && bytes(value(item.index, "program_bytes"))],
    ["weights", recipe && `${bytesLeft(item.index, null)}; ${layersChanged(item.index)} changed`]]));
}

function errorPart(item, width) {
  const [own, reference, allowed] = ["error", "reference_error", "allowed_error"].map((name) => value(item.index, name));
  if (own === null && value(item.index, "sqnr") === null) return null;
  const shown = (number) => (number === null ? null : number === 0 ? "0" : number.toExponential(1));
  const marks = [
    { name: "this", number: own, kind: "own" },
    { name: "same-type reference", number: reference, kind: "other" },
    { name: "allowed", number: allowed, kind: "limit" },
  ];
  return part("Error against the truth",
    marks.filter((mark) => mark.number > 0).length > 1 ? figure(errorPlot(width, marks), "The line is the limit of the relative RMSE. Other limits apply, too.") : null,
    facts([
      ["relative RMSE", shown(own)], ["relative RMSE of the reference", shown(reference)],
      ["allowed", allowed === null ? null : `${shown(allowed)}${own !== null && allowed > 0 ? `, ${digits((100 * own) / allowed, 2)} % used` : ""}`],
      ["largest absolute error", shown(value(item.index, "max_error"))],
      ["compared", value(item.index, "judged") && "integers only, which do not test precision"],
      ["SQNR", value(item.index, "sqnr") === null ? null : `${digits(value(item.index, "sqnr"))} dB`],
    ]));
}

function rooflinePart(item, width) {
  const cost = item.workload.cost;
  if (!cost || !item.ms || item.workload.quantity !== "latency") return null;
  const ceilings = value(item.index, "ceilings") === null ? null : DATA.ceilings[value(item.index, "ceilings")];
  const peak = ceilings?.peaks[textOf(item.index, "peak") ?? item.workload.data_type];
  const base = baselineOf(item);
  const marks = [item, base !== item ? base : null].filter((other) => other?.ms).map((other) => ({ name: other.runnerName, ms: other.ms[0] }));
  const share = value(item.index, "share");
  return part("Roofline",
    peak && ceilings.bandwidth && cost[0] && cost[1] ? figure(rooflinePlot(width, cost, ceilings, peak, marks), `Ceilings measured ${when(ceilings.date)} ${ceilings.gpu ? `on ${ceilings.gpu}` : `with ${ceilings.threads} thread${ceilings.threads === 1 ? "" : "s"}`}${ceilings.contended ? ", while other processes used the machine" : ""}.`) : null,
    facts([
      ["per iteration", `${large(cost[0])}flop, ${bytes(cost[1])}; counted from ${text(cost[2])}`],
      ["reached", `${digits(cost[0] / item.ms[0] / 1e6)} GFLOP/s, ${digits(cost[1] / item.ms[0] / 1e6)} GB/s`],
      ["share of the roof", share === null ? (ceilings ? "no ceiling for this data type" : "unknown: run `cbs doctor --ceilings` on that machine (with -device for a GPU), then create the report again") : `${digits(100 * share, 2)} %`],
    ]));
}

function trendPart(item, width) {
  const points = DATA.trends[item.id];
  if (!points) return null;
  const changes = points.map((point, position) => (position && point[4] !== points[position - 1][4] ? [when(DATA.times[point[0]]), versionChange(points[position - 1][4], point[4])] : null)).filter((change) => change && change[1]);
  return part("Trend", figure(trendPlot(width, points, item.quantity), `${points.length === DATA.trend_points ? "The latest " : ""}${points.length} runs. Bars are 95 % intervals; dashed lines mark changed versions.`),
    changes.length ? h("details", {}, h("summary", {}, `Versions changed ${changes.length === 1 ? "once" : `${changes.length} times`}`), facts(changes)) : null);
}

/** Why it is slower than the fastest, from profiles of both. */
function explainedPart(item) {
  const found = value(item.index, "explained");
  if (found === null) return null;
  const { error, competitors, covers, lost, rows, lines } = DATA.explained[found];
  if (error) return part("Why slower", h("p", { class: "reason" }, error));
  const ms = (number) => (number === null ? "-" : digits(number));
  const roof = (share) => (share === null ? "" : `${digits(100 * share, 2)} %`);
  const cell = (content, hint) => h("td", { class: "number", title: hint || null }, content);
  return part(`Why slower than ${competitors[1]}`,
    h("p", {}, `${ms(lost)} ms per iteration, by kind of operator; profiles cover ${covers.map((cover) => (cover === null ? "an unknown share" : `${digits(100 * cover, 2)} %`)).join(" and ")} of the latencies.`),
    h("div", { class: "scroller" }, h("table", { class: "explained" },
      h("thead", {}, h("tr", {}, ["kind", "lost ms", competitors[0], "of roof", competitors[1], "of roof"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map(([kind, more, slow, slowRoof, slowest, fast, fastRoof, fastest]) => h("tr", {},
        h("th", { scope: "row" }, kind), cell(ms(more)), cell(ms(slow), slowest), cell(roof(slowRoof)), cell(ms(fast), fastest), cell(roof(fastRoof))))))),
    facts(lines.map(([competitor, what, line]) => [`${competitor}: ${what}`, line])));
}

/** Links to what profilers left, where it lies beside the page. */
function profilePart(item) {
  const profile = value(item.index, "profile");
  if (profile === null) return null;
  const { folder, files, error } = DATA.profiles[profile];
  return part("Profile",
    error ? h("p", { class: "reason" }, `No profile: ${error}`) : null,
    facts(files.map(([name, link]) => [name, link ? h("a", { href: link, class: "profile" }, "open") : "not found next to this page"])),
    folder ? h("p", { class: "quiet" }, `In ${folder}; open traces at https://ui.perfetto.dev.`) : null);
}

function changePart(item) {
  const [change, verdict] = [value(item.index, "change"), textOf(item.index, "change_verdict")];
  if (!verdict) return null;
  const old = value(item.index, "old_ms");
  return part("Since the baseline results",
    h("p", { class: `verdict v-${verdict}` }, h("b", {}, `${GLYPHS[verdict] || ""} ${words(verdict)}`), change ? ` ${percent(change[0])} ${item.quantity}, 98 % interval ${percent(change[1])} to ${percent(change[2])}${within(value(item.index, "change_replicates"))}` : ""),
    facts([["then", old && `${withInterval(old)} ms`], ["now", old && item.ms && `${withInterval(item.ms)} ms`], ["why", textOf(item.index, "change_why")]]));
}

function ranPart(item) {
  const run = DATA.runs[value(item.index, "run")], versions = DATA.versions[value(item.index, "versions")];
  // As `_again` of columns.py, which adds a command where this one would be wrong.
  const which = item.workload.micro ?? `-name ${textOf(item.index, "benchmark")}`;
  const again = textOf(item.index, "again") ?? `cbs ${item.workload.micro ? "micro run" : "run"} --backend ${item.runner.competitor.replace(/@.*/, "")} ${which} -device ${item.workload.device} -o again.json`;
  return part("What ran",
    facts([
      ["case", textOf(item.index, "benchmark")],
      ["workload", `${item.workload.label}, digest ${item.workload.digest}`],
      ["inputs", [item.workload.input, ...item.workload.inputs].filter(Boolean).join(", ")], ["tags", item.workload.tags.join(", ")],
      ["level", words(item.runner.level)], ["weights", textOf(item.index, "weights")],
      ["program", value(item.index, "program") && `sha256 ${value(item.index, "program")}…`],
      ["packages", Object.entries(versions || {}).map(([name, version]) => `${name} ${version}`).join(", ")],
      ["run", `${when(run.time)}, ${run.id}`], ["harness", run.revision],
    ]),
    h("p", {}, "To repeat:"), h("pre", { class: "command" }, again),
    Object.keys(run.host).length ? h("details", {}, h("summary", {}, "Machine"), facts(Object.entries(run.host).map(([name, content]) => [words(name), content]))) : null);
}

function showDetail(state) {
  const item = BY_ID.get(state.case);
  if (!state.case) {
    if (DIALOG.open) DIALOG.close();
    return;
  }
  if (!DIALOG.open) {
    opener = document.activeElement;
    DIALOG.showModal();
  }
  if (DIALOG.dataset.shown === state.case) return;
  DIALOG.dataset.shown = state.case;
  document.getElementById("address").hidden = true;
  document.getElementById("detail-title").textContent = item ? [item.workload.label, inputName(item.workload)].filter(Boolean).join(", ") : "No such case";
  document.getElementById("detail-runner").textContent = item ? `${item.runnerName} on ${item.workload.device}, ${item.workload.machine}` : `This report does not contain case ${state.case}.`;
  const width = Math.max(260, Math.min(820, DETAIL.clientWidth || 600));
  DETAIL.replaceChildren(...(item ? [
    verdictPart(item), changePart(item), samplesPart(item, width), trendPart(item, width), compilePart(item), memoryPart(item),
    errorPart(item, width), rooflinePart(item, width), explainedPart(item), profilePart(item), ranPart(item),
  ].filter(Boolean) : []));
  DETAIL.scrollTop = 0;
}

DIALOG.addEventListener("close", () => {
  delete DIALOG.dataset.shown;
  if (readState().case) setState({ case: "" });
  const link = opener?.isConnected ? opener : null;
  (link || document.getElementById("q")).focus({ preventScroll: true });
});
DIALOG.addEventListener("click", (event) => {
  // On the backdrop: the dialog's content covers the rest of it.
  if (event.target === DIALOG) DIALOG.close();
});
document.getElementById("close").addEventListener("click", () => DIALOG.close());
document.getElementById("copy").addEventListener("click", async () => {
  const field = document.getElementById("address");
  field.value = location.href;
  const button = document.getElementById("copy");
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Link copied";
  } catch {
    // Without leave for the clipboard the address can be copied by hand.
    field.hidden = false;
    field.select();
    button.textContent = "Copy the address below:";
  }
  setTimeout(() => { button.textContent = "Copy link"; }, 3000);
});
