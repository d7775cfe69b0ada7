// Plots as SVG, made as wide as there is room, so that their texts stay readable on a phone.

const CODE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const STEPS = CODE.length ** 2 - 1;

/** Returns the samples in ms that a text of dots stands for. */
function decode(dots, [low, high]) {
  const found = [];
  for (let position = 0; position < dots.length; position += 2) {
    const step = CODE.indexOf(dots[position]) * CODE.length + CODE.indexOf(dots[position + 1]);
    found.push(low * (high / low) ** (step / STEPS));
  }
  return found;
}

/** Returns a scale from a domain to pixels; `log` where asked for. */
function scale(domain, range, log = false) {
  const [low, high] = log ? domain.map(Math.log10) : domain;
  const span = high - low || 1;
  const f = (number) =>
    range[0] + (((log ? Math.log10(number) : number) - low) / span) * (range[1] - range[0]);
  f.domain = domain;
  f.log = log;
  return f;
}

/** Returns about so many round values within the domain of a scale. */
function ticks(f, count) {
  const [low, high] = f.domain;
  if (f.log) {
    const decades = Math.log10(high / low);
    const factors = decades > 3 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const factor of factors) {
        const tick = factor * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
      }
    }
    const every = Math.ceil(found.length / (count + 1));
    return found.filter((_, position) => position % every === 0);
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) found.push(tick);
  return found;
}

function tickText(number) {
  if (number !== 0 && (Math.abs(number) >= 1e6 || Math.abs(number) < 1e-3)) {
    return number.toExponential(0).replace("e+", "e");
  }
  return digits(number);
}

/** Returns an SVG with axes: `body` gets the scales and draws. */
function plot(width, height, { x, y, xLabel, yLabel, label, xTicks = true, yTicks = true }, body) {
  const left = 58, bottom = 42, top = 12, right = 14;
  const fx = scale(x.domain, [left, width - right], x.log);
  const fy = scale(y.domain, [height - bottom, top], y.log);
  const image = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const tick of yTicks ? ticks(fy, 5) : []) {
    image.append(
      s("line", { class: "grid", x1: left, x2: width - right, y1: fy(tick), y2: fy(tick) }),
      s("text", { x: left - 6, y: fy(tick) + 4, "text-anchor": "end" }, tickText(tick)),
    );
  }
  if (xTicks) {
    for (const tick of x.ticks ?? ticks(fx, Math.max(2, Math.floor(width / 110)))) {
      image.append(
        s("line", { class: "grid", x1: fx(tick), x2: fx(tick), y1: top, y2: height - bottom }),
        s("text", { x: fx(tick), y: height - bottom + 16, "text-anchor": "middle" }, tickText(tick)),
      );
    }
  }
  image.append(
    s("text", { class: "axis", x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel),
    s("text", { class: "axis", x: 13, y: (top + height - bottom) / 2, "text-anchor": "middle",
      transform: `rotate(-90 13 ${(top + height - bottom) / 2})` }, yLabel),
  );
  body(image, fx, fy, { left, right: width - right, top, bottom: height - bottom });
  return image;
}

/** Returns limits a little wider than what is to be seen. */
function padded(numbers, log, share = 0.06) {
  const low = Math.min(...numbers), high = Math.max(...numbers);
  if (log) {
    const factor = (high / low) ** share * 1.02;
    return [low / factor, high * factor];
  }
  const margin = (high - low) * share || high * 0.05;
  return [Math.max(0, low - margin), high + margin];
}

/** Samples of a case and of its baseline: a column of dots for each process, in their order. */
function samplePlot(width, items, unit) {
  const groups = items.flatMap((item) => {
    const range = value(item.index, "range");
    return (value(item.index, "dots") || []).map((dots, position) => ({
      item, position, samples: decode(dots, range),
    }));
  });
  const everything = groups.flatMap((group) => group.samples);
  const bands = items.flatMap((item) => item.ms.filter((number) => number > 0));
  const log = Math.max(...everything) / Math.min(...everything) > 6;
  return plot(
    width, 260,
    {
      x: { domain: [0, groups.length] }, xTicks: false,
      y: { domain: padded([...everything, ...bands], log), log },
      xLabel: "processes, with samples in order", yLabel: `${unit}, ms${log ? " (log)" : ""}`,
      label: `Samples of ${groups.length} processes from ${digits(Math.min(...everything))} to ${digits(Math.max(...everything))} ms`,
    },
    (image, fx, fy, box) => {
      let start = 0;
      items.forEach((item, number) => {
        const own = groups.filter((group) => group.item === item);
        const kind = number === 0 ? "own" : "other";
        const [x1, x2] = [fx(start), fx(start + own.length)];
        const [estimate, low, high] = item.ms;
        image.append(
          s("rect", { class: `band ${kind}`, x: x1, width: x2 - x1, y: fy(high), height: Math.max(1, fy(low || fy.domain[0]) - fy(high)) }),
          s("line", { class: `centre ${kind}`, x1, x2, y1: fy(estimate), y2: fy(estimate) }),
          s("text", { x: (x1 + x2) / 2, y: box.bottom + 16, "text-anchor": "middle" }, shortened(item.runner.competitor, (x2 - x1) / 7)),
        );
        own.forEach((group, position) => {
          const [from, to] = [fx(start + position + 0.12), fx(start + position + 0.88)];
          group.samples.forEach((sample, order) => {
            const cx = from + ((order + 0.5) / group.samples.length) * (to - from);
            image.append(s("circle", { class: `dot ${kind}`, cx, cy: fy(sample), r: 2.2 }));
          });
        });
        start += own.length;
        if (start < groups.length) {
          image.append(s("line", { class: "divider", x1: fx(start), x2: fx(start), y1: box.top, y2: box.bottom }));
        }
      });
    },
  );
}

/** A case over time: points with their intervals; a dashed line where versions changed. */
function trendPlot(width, points, unit) {
  const times_ = points.map((point) => Date.parse(DATA.times[point[0]]));
  const numbers = points.flatMap(([, centre, low, high]) => [centre, low, high].filter((n) => n > 0));
  const first = Math.min(...times_), last = Math.max(...times_);
  const day = 86_400_000;
  return plot(
    width, 220,
    {
      x: { domain: [first - (last - first) * 0.03 - 1, last + (last - first) * 0.03 + 1] }, xTicks: false,
      y: { domain: padded(numbers, false, 0.15) },
      xLabel: `${when(DATA.times[points[0][0]]).slice(0, last - first > 2 * day ? 10 : 16)} to ${when(DATA.times[points.at(-1)[0]]).slice(0, last - first > 2 * day ? 10 : 16)}`,
      yLabel: `${unit}, ms`,
      label: `Trend over ${points.length} runs, from ${digits(points[0][1])} to ${digits(points.at(-1)[1])} ms`,
    },
    (image, fx, fy, box) => {
      const places = times_.map((time) => fx(time));
      points.forEach(([, , , , versions], position) => {
        if (position && versions !== points[position - 1][4]) {
          const x = (places[position] + places[position - 1]) / 2;
          image.append(s("line", { class: "divider", x1: x, x2: x, y1: box.top, y2: box.bottom },
            s("title", {}, versionChange(points[position - 1][4], versions))));
        }
      });
      image.append(s("polyline", { class: "trend", points: points.map((point, p) => `${places[p]},${fy(point[1])}`).join(" ") }));
      points.forEach(([time, centre, low, high], position) => {
        const x = places[position];
        if (low && high) image.append(s("line", { class: "whisker own", x1: x, x2: x, y1: fy(low), y2: fy(high) }));
        image.append(s("circle", { class: "dot own big", cx: x, cy: fy(centre), r: 3.5 },
          s("title", {}, `${when(DATA.times[time])}: ${withInterval([centre, low, high])} ms`)));
      });
    },
  );
}

/** Says what of the packages changed between two entries of the table of versions. */
function versionChange(before, after) {
  const [old, now] = [DATA.versions[before] || {}, DATA.versions[after] || {}];
  const names = [...new Set([...Object.keys(old), ...Object.keys(now)])].filter((name) => old[name] !== now[name]);
  return names.map((name) => `${name} ${old[name] ?? "absent"} → ${now[name] ?? "absent"}`).join(", ");
}

/** Error against the float64 truth: of this result, of the same-type reference, and the limit. */
function errorPlot(width, marks) {
  const known = marks.filter((mark) => mark.number > 0);
  return plot(
    width, 110,
    {
      x: { domain: padded(known.map((mark) => mark.number), true, 0.15), log: true },
      y: { domain: [0, 1] }, yTicks: false, xLabel: "relative RMSE (log)", yLabel: "",
      label: known.map((mark) => `${mark.name} ${mark.number.toExponential(1)}`).join(", "),
    },
    (image, fx, _, box) => {
      const middle = (box.top + box.bottom) / 2;
      known.forEach((mark, position) => {
        const x = fx(mark.number);
        if (mark.kind === "limit") {
          image.append(s("line", { class: "limit", x1: x, x2: x, y1: box.top, y2: box.bottom }));
        } else {
          image.append(s("circle", { class: `dot ${mark.kind} big`, cx: x, cy: middle, r: 5 }));
        }
        image.append(s("text", { x, y: position % 2 ? box.bottom - 4 : box.top + 10, "text-anchor": x > (box.left + box.right) / 2 ? "end" : "start", dx: x > (box.left + box.right) / 2 ? -7 : 7 }, mark.name));
      });
    },
  );
}

/** The roofline: attainable GFLOP/s over flops per byte, and where the results stand. */
function rooflinePlot(width, cost, ceilings, peak, marks) {
  const intensity = cost[0] / cost[1];
  const rates = marks.map((mark) => cost[0] / mark.ms / 1e6);
  const ridge = peak / ceilings.bandwidth;
  const x = { domain: padded([intensity, ridge, intensity / 3, ridge * 3], true, 0.05), log: true };
  const roof = (at) => Math.min(peak, at * ceilings.bandwidth);
  const y = { domain: padded([...rates, peak, roof(x.domain[0])], true, 0.08), log: true };
  return plot(
    width, 240,
    { x, y, xLabel: "flops per byte (log)", yLabel: "GFLOP/s (log)",
      label: `Roofline: ${digits(intensity)} flops per byte, ${digits(rates[0])} of at most ${digits(roof(intensity))} GFLOP/s` },
    (image, fx, fy) => {
      const corners = [x.domain[0], ridge, x.domain[1]].filter((at) => at >= x.domain[0] && at <= x.domain[1]);
      image.append(s("polyline", { class: "roof", points: corners.map((at) => `${fx(at)},${fy(roof(at))}`).join(" ") }));
      marks.toReversed().forEach((mark, order) => {
        const position = marks.length - 1 - order;
        image.append(s("circle", { class: `dot ${position ? "other" : "own"} big`, cx: fx(intensity), cy: fy(rates[position]), r: position ? 4 : 6 },
          s("title", {}, `${mark.name}: ${digits(rates[position])} GFLOP/s`)));
      });
    },
  );
}

function shortened(name, room) {
  const most = Math.max(4, Math.floor(room));
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}
