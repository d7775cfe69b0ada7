// Plots of many points: series that can be told apart without colours, hidden, and walked by keys.

const TIP = document.getElementById("tip");
const MARKS = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0,${-1.2 * r}L${1.15 * r},${0.9 * r}H${-1.15 * r}z`,
  (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0z`,
  (r) => `M0,${1.2 * r}L${1.15 * r},${-0.9 * r}H${-1.15 * r}z`,
];
const COLOURS = 10;
const DODGE = 3;

// Of ten colours and five marks each pair comes once before one comes again.
const markPath = (style, r) => MARKS[(style + Math.floor(style / MARKS.length)) % MARKS.length](r);
const decided = (verdict) => ["faster", "slower", "baseline"].includes(verdict);

/** Returns limits of a logarithmic axis: of all estimates, and of intervals no further than twice that. */
function domainOf(points, others = []) {
  const centres = [...others, ...points.map((point) => point.y[0])];
  const [low, high] = [Math.min(...centres) / 2, Math.max(...centres) * 2];
  const ends = points.flatMap((point) => point.y.slice(1)).filter((end) => end >= low && end <= high);
  return padded([...centres, ...ends], true);
}

/**
 * Returns a plot of estimates with their intervals on a logarithmic axis, with a line at `reference`.
 *
 * A series has a `name`, a `style`, a `line` through places, and `points`: their `x`, `y`, `verdict`,
 * the `id` of their case or null, the lines of their tip (`says`), and a `text` next to the mark.
 */
function seriesPlot(width, height, { x, xLabel, yLabel, label, reference }, series) {
  const points = series.flatMap((one) => one.points);
  const image = plot(
    width, height,
    { x, y: { domain: domainOf(points, reference ? [reference] : []), log: true }, xLabel, yLabel, label },
    (svg, fx, fy, box) => {
      const clipped = (y) => Math.min(box.bottom, Math.max(box.top, y));
      if (reference) svg.append(s("line", { class: "one", x1: box.left, x2: box.right, y1: fy(reference), y2: fy(reference) }));
      series.forEach((one, order) => {
        const aside = (order - (series.length - 1) / 2) * Math.min(DODGE, 24 / series.length);
        const colour = `c${one.style % COLOURS}`;
        svg.append(s("polyline", { class: `line ${colour}`, points: one.line.map(([at, y]) => `${fx(at) + aside},${clipped(fy(y))}`).join(" ") }));
        one.points.forEach((point) => {
          const [estimate, low, high] = point.y;
          const place = [fx(point.x) + aside, fy(estimate)];
          const classes = `point ${colour}${decided(point.verdict) ? "" : " hollow"}${point.faint ? " faint" : ""}`;
          svg.append(s(point.id ? "a" : "g", { class: classes, href: point.id && linkTo({ case: point.id }), tabindex: -1, role: point.id ? null : "img",
            "data-series": order, "data-x": place[0], "data-id": point.id, "aria-label": point.says.join("; ") },
          s("line", { class: "whisker", x1: place[0], x2: place[0], y1: clipped(low === null ? box.bottom : fy(low)), y2: clipped(high === null ? box.top : fy(high)) }),
          s("path", { class: "mark", d: markPath(one.style, 4.5), transform: `translate(${place})` }),
          point.text ? s("text", { x: place[0] + 8, y: place[1] - 6 }, point.text) : null));
        });
      });
    },
  );
  image.setAttribute("role", "group");
  image.classList.add("walked");
  image.querySelector(".point")?.setAttribute("tabindex", "0");
  return image;
}

/** Shows what a point says, beside it and within the window. */
function showTip(point) {
  const [first, ...others] = point.getAttribute("aria-label").split("; ");
  TIP.replaceChildren(h("b", {}, first), ...others.map((line) => h("span", {}, line)));
  TIP.hidden = false;
  const mark = point.querySelector(".mark").getBoundingClientRect();
  const box = TIP.getBoundingClientRect();
  const left = Math.min(innerWidth - box.width - 8, Math.max(8, mark.left + mark.width / 2 - box.width / 2));
  const above = mark.top - box.height - 8;
  TIP.style.left = `${left + scrollX}px`;
  TIP.style.top = `${(above > 4 ? above : mark.bottom + 8) + scrollY}px`;
}

const pointOf = (event) => event.target.closest?.(".point");
for (const [shows, hides] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
  document.addEventListener(shows, (event) => { if (pointOf(event)) showTip(pointOf(event)); });
  document.addEventListener(hides, (event) => { if (pointOf(event)) TIP.hidden = true; });
}

// A plot is one stop of Tab; arrow keys go along a series, and to the nearest point of another.
document.addEventListener("keydown", (event) => {
  const point = pointOf(event);
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!point || !step || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const all = [...point.closest("svg").querySelectorAll(".point")];
  const series = [...Map.groupBy(all, (other) => other.dataset.series).values()];
  const own = series.findIndex((points) => points.includes(point));
  let next = series[own][series[own].indexOf(point) + step[0]];
  if (step[1]) {
    const away = (other) => Math.abs(other.dataset.x - point.dataset.x);
    next = series[own + step[1]]?.reduce((best, other) => (away(other) < away(best) ? other : best));
  }
  if (!next) return;
  point.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

/** Buttons that hide series and show them again; which are hidden stands in the address. */
function seriesLegend(names, styleOf, counts, off) {
  return names.map((name) => h("button", { type: "button", class: `series c${styleOf(name) % COLOURS}`, "data-name": name, "aria-pressed": String(!off.has(name)),
    onclick: (event) => {
      const hidden = new Set(off), section = event.currentTarget.closest("section");
      if (!hidden.delete(name)) hidden.add(name);
      setState({ off: [...hidden].filter(Boolean).join("|") });
      section.querySelector(`button.series[data-name="${CSS.escape(name)}"]`)?.focus();
    } },
  s("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, s("path", { class: "mark", d: markPath(styleOf(name), 5) })),
  " ", name, counts(name)));
}

/** What has no place in a plot: who, why, and on what. */
function notDrawn(items) {
  if (!items.length) return null;
  const groups = [...Map.groupBy(items, ({ item, why }) => `${item.runnerName}\0${why}`).values()];
  const few = 3;
  return h("details", { class: "left-out" },
    h("summary", {}, `Not drawn: ${items.length} result${items.length === 1 ? "" : "s"}`),
    h("ul", { class: "list" }, groups.map((group) => h("li", {},
      h("b", { class: `st-${group[0].item.status}` }, group[0].item.runnerName), ` ${shortened(group[0].why, 240)}: `,
      group.slice(0, few).map(({ item }, position) => [position ? ", " : "", h("a", { href: linkTo({ case: item.id }) }, item.workload.label)]),
      group.length > few ? ` and ${group.length - few} more` : ""))));
}

/** Fills a choice once; the first is what is shown without one. */
function fillChoice(select, names, chosen) {
  const known = [...select.options].map((option) => option.value).join("|");
  const wanted = names.map(([key]) => key).join("|");
  if (known !== wanted) select.replaceChildren(...names.map(([key, name]) => h("option", { value: key }, name)));
  select.value = names.some(([key]) => key === chosen) ? chosen : names[0]?.[0] ?? "";
  select.closest("label").hidden = names.length < 2;
}
