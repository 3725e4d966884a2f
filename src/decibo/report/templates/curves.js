"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const AXES = {
    step: { name: "steps", unit: "steps" },
    work: {
      name: "work, in gradients of all agents", unit: "gradients",
      note: "A product with second derivatives counts as two gradients, a value of an objective as half of one.",
    },
    bytes: { name: "bytes sent, all links", unit: "bytes" },
    seconds: {
      name: "seconds", unit: "seconds",
      note: "Seconds are the time of all steps, without compiling and measuring, divided equally among them: single steps are not timed.",
    },
  };
  const SVG = "http://www.w3.org/2000/svg";
  const chart = byId("chart"), plot = byId("plot"), tip = byId("tip");
  const hidden = new Set();
  let scene = null; // what was drawn last: scales and points in pixels
  let focus = null; // the point that is read out: {line, point}

  // ---- numbers as people read them ----
  const SUPER = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  const power = (k) => "10" + String(k).split("").map((c) => SUPER[c]).join("");
  const minus = (text) => text.replace(/-/g, "−");
  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

  function measured(v) {
    if (v === 0) return "0";
    const a = Math.abs(v);
    if (a >= 1e-3 && a < 1e5) return minus(trim(v.toPrecision(4)));
    return minus(v.toExponential(2).replace("e+", "e"));
  }
  function short(v) { // for ticks
    const a = Math.abs(v);
    if (a === 0) return "0";
    if (a < 1e5 && Number.isInteger(v)) return minus(v.toLocaleString("en-GB"));
    for (const [size, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (a >= size) return minus(trim((v / size).toPrecision(4))) + prefix;
    }
    return a >= 1e-3 ? minus(trim(v.toPrecision(4))) : minus(v.toExponential(1).replace(".0e", "e"));
  }
  function spent(v, axis) {
    if (axis === "seconds") return v < 1 ? trim((1e3 * v).toPrecision(3)) + " ms" : trim(v.toPrecision(4)) + " s";
    if (axis === "bytes") {
      for (const [size, prefix] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
        if (v >= size) return trim((v / size).toPrecision(3)) + " " + prefix;
      }
      return v + " B";
    }
    return Math.round(v).toLocaleString("en-GB");
  }

  // ---- small helpers ----
  function node(tag, attributes, ...children) {
    const made = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }
  const shape = (tag, attributes, ...children) => node("svg:" + tag, attributes, ...children);
  function options(select, items, chosen) {
    for (const [value, text] of items) select.append(node("option", { value }, text));
    if (chosen !== null && chosen !== undefined) select.value = chosen;
  }
  const mark = (run) => shape("svg", { class: "mark", viewBox: "0 0 22 8", "aria-hidden": "true" },
    shape("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: `var(--c${run.colour})`, "stroke-dasharray": run.dash }));
  const titled = (m) => (m.words ? `${m.name}   ${m.words}` : m.name);
  const measureNamed = (name) => data.measures.find((m) => m.name === name) || { name: "", words: "", log: false };

  // ---- scales ----
  function scale(low, high, log, from, to) {
    const f = log ? Math.log10 : (v) => v;
    const a = f(low), b = f(high), width = b - a || 1;
    const at = (v) => from + ((f(v) - a) / width) * (to - from);
    return { at, low, high, log, ticks: log ? logTicks(a, b) : evenTicks(low, high) };
  }
  function evenTicks(low, high) {
    const rough = (high - low) / 6 || 1, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * size).find((s) => s >= rough);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-12) + step * 1e-9; k++) found.push(k * step);
    return found.map((v) => ({ v, text: short(Math.abs(v) < step * 1e-9 ? 0 : v) }));
  }
  function logTicks(a, b) { // a, b are exponents
    const found = [], decades = b - a, skip = Math.max(1, Math.ceil(decades / 8));
    for (let k = Math.floor(a); k <= Math.ceil(b); k++) {
      if (k >= a - 1e-9 && k <= b + 1e-9 && k % skip === 0) found.push({ v: 10 ** k, text: power(k) });
      if (decades > 8) continue;
      for (let j = 2; j < 10; j++) {
        const e = k + Math.log10(j), named = decades < 1.5 && (j === 2 || j === 5);
        if (e >= a && e <= b) found.push({ v: j * 10 ** k, text: named ? short(j * 10 ** k) : "", minor: !named });
      }
    }
    return found;
  }

  // ---- what is drawn ----
  function lines(measure, axis, logX, logY) {
    return data.runs.map((run, k) => {
      const values = run.values[measure], price = run.per[axis];
      const points = [];
      if (values && price !== null) {
        for (let i = 0; i < values.length; i++) {
          const x = run.step[i] * price, y = values[i];
          const fine = y !== null && !(logX && x <= 0) && !(logY && y <= 0);
          points.push(fine ? { x, y, step: run.step[i], low: end(run.low, i, -Infinity), high: end(run.high, i, Infinity) } : null);
        }
      }
      function end(ends, i, open) { return ends[measure] ? (ends[measure][i] === null ? open : ends[measure][i]) : null; }
      return { run, k, points, shown: !hidden.has(k) };
    });
  }
  // Runs that diverged go off the top rather than flatten all others.
  function limits(drawn, logY) {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity, wild = false;
    const calm = drawn.some((l) => l.run.sound && l.points.some((p) => p));
    for (const line of drawn) {
      const only = calm && !line.run.sound;
      let first = true;
      for (const p of line.points) {
        if (!p) continue;
        x0 = Math.min(x0, p.x); x1 = Math.max(x1, p.x);
        if (only && !first) { wild = wild || p.y > y1; continue; }
        first = false;
        y0 = Math.min(y0, p.y); y1 = Math.max(y1, p.y);
        if (p.low !== null && Number.isFinite(p.low) && (p.low > 0 || !logY)) y0 = Math.min(y0, p.low);
        if (p.high !== null && Number.isFinite(p.high) && line.run.sound) y1 = Math.max(y1, p.high);
      }
    }
    if (x0 > x1) return null;
    if (wild) y1 = logY ? y1 * 30 : y1 + 0.3 * (y1 - y0);
    if (logY) { y0 /= 1.5; y1 *= 1.5; } else { const gap = (y1 - y0 || Math.abs(y1) || 1) * 0.05; y0 -= gap; y1 += gap; }
    if (x0 === x1) { x1 = x0 ? x0 * 1.1 : 1; }
    return { x0, x1, y0, y1 };
  }
  function path(points, X, Y, bottom) {
    let d = "", pen = false;
    for (const p of points) {
      if (!p) { pen = false; continue; }
      const y = Math.max(-500, Math.min(bottom + 500, Y.at(p.y)));
      d += `${pen ? "L" : "M"}${X.at(p.x).toFixed(1)},${y.toFixed(1)}`;
      pen = true;
    }
    return d;
  }

  function area(points, X, Y, bottom) { // between the ends of a band; what is infinite leaves the chart
    const inside = (v, open) => (Number.isFinite(v) && !(Y.log && v <= 0) ? Math.max(-500, Math.min(bottom + 500, Y.at(v))) : open);
    let d = "", part = [];
    const close = () => {
      if (part.length > 1) {
        const up = part.map((p) => `${X.at(p.x).toFixed(1)},${inside(p.high, -500).toFixed(1)}`);
        const down = part.map((p) => `${X.at(p.x).toFixed(1)},${inside(p.low, bottom + 500).toFixed(1)}`).reverse();
        d += `M${[...up, ...down].join("L")}Z`;
      }
      part = [];
    };
    for (const p of points) { if (p) part.push(p); else close(); }
    close();
    return d;
  }

  function draw() {
    const width = Math.max(280, plot.clientWidth || 900), height = width < 560 ? 320 : 430;
    const measure = byId("measure").value, axis = byId("axis").value;
    const logX = byId("log-x").checked, logY = byId("log-y").checked;
    const all = lines(measure, axis, logX, logY), drawn = all.filter((l) => l.shown);
    const box = { left: 64, right: width - 14, top: 30, bottom: height - 46 };
    chart.replaceChildren();
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.setAttribute("height", height);
    const range = limits(drawn, logY);
    scene = null; focus = null; tip.hidden = true;
    frame(width, height, box, titled(measureNamed(measure)), AXES[axis].name);
    byId("axis-note").textContent = AXES[axis].note || "";
    if (!range) {
      const why = drawn.length ? "Nothing here can be shown on these axes." : "All lines are hidden.";
      chart.append(shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle", fill: "var(--soft)" }, why));
      return;
    }
    const X = scale(range.x0, range.x1, logX, box.left, box.right);
    const Y = scale(range.y0, range.y1, logY, box.bottom, box.top);
    grid(X, Y, box);
    const inside = shape("g", { "clip-path": "url(#inside)" });
    for (const line of drawn.filter((each) => each.run.seeds > 1)) {
      inside.append(shape("path", {
        d: area(line.points, X, Y, box.bottom), fill: `var(--c${line.run.colour})`, "fill-opacity": 0.18, stroke: "none", class: "band" }));
    }
    for (const line of drawn) {
      inside.append(shape("path", {
        d: path(line.points, X, Y, box.bottom), fill: "none", stroke: `var(--c${line.run.colour})`, "stroke-width": 2,
        "stroke-dasharray": line.run.dash, "stroke-linejoin": "round", "data-line": line.k,
      }));
      const left = !line.run.sound && (line.points.find((p) => p && p.y > range.y1) || line.points.findLast((p) => p));
      if (left) inside.append(cross(X.at(left.x), Math.max(box.top + 5, Y.at(left.y)), line.run.colour));
    }
    chart.append(inside, shape("g", { id: "focus" }));
    const flat = drawn.flatMap((line) => line.points.map((p, i) => p && { line, i, p, px: X.at(p.x), py: Y.at(p.y) }).filter(Boolean));
    scene = { box, width, height, axis, drawn, flat: flat.filter((q) => q.py >= box.top - 2) };
  }
  function frame(width, height, box, up, across) {
    const clip = shape("clipPath", { id: "inside" }, shape("rect", {
      x: box.left, y: box.top - 3, width: box.right - box.left + 3, height: box.bottom - box.top + 6 }));
    chart.append(shape("defs", {}, clip),
      shape("text", { x: 4, y: 15, fill: "var(--ink)", "font-size": 13, "font-weight": 600 }, up),
      shape("text", { x: (box.left + box.right) / 2, y: height - 8, fill: "var(--ink)", "font-size": 13, "text-anchor": "middle" }, across));
  }
  function grid(X, Y, box) {
    const g = shape("g", { "font-size": 12, fill: "var(--soft)" });
    const line = (x1, y1, x2, y2, colour) => shape("line", { x1, y1, x2, y2, stroke: `var(--${colour})`, "stroke-width": 1 });
    let free = -Infinity;
    for (const tick of X.ticks) {
      const x = X.at(tick.v), room = 7 * tick.text.length + 14;
      if (x < box.left - 0.5 || x > box.right + 0.5) continue;
      if (!tick.minor) g.append(line(x, box.top, x, box.bottom, "grid"));
      if (!tick.text || x - room / 2 < free) continue;
      free = x + room / 2;
      const anchor = x + room / 2 - 7 > box.right + 14 ? "end" : "middle";
      g.append(shape("text", { x: anchor === "end" ? box.right + 12 : x, y: box.bottom + 18, "text-anchor": anchor }, tick.text));
    }
    for (const tick of Y.ticks) {
      const y = Y.at(tick.v);
      if (tick.minor || y < box.top - 0.5 || y > box.bottom + 0.5) continue;
      g.append(line(box.left, y, box.right, y, "grid"),
        shape("text", { x: box.left - 8, y, dy: "0.35em", "text-anchor": "end" }, tick.text));
    }
    g.append(line(box.left, box.bottom, box.right, box.bottom, "line"));
    chart.append(g);
  }
  const cross = (x, y, colour) => shape("path", {
    d: `M${x - 5},${y - 5}L${x + 5},${y + 5}M${x - 5},${y + 5}L${x + 5},${y - 5}`, stroke: `var(--c${colour})`, "stroke-width": 2.4 });

  // ---- reading out ----
  function nearest(x, y) {
    let best = null, least = Infinity;
    for (const q of scene.flat) {
      const d = (q.px - x) ** 2 + (q.py - y) ** 2;
      if (d < least) { least = d; best = q; }
    }
    return best;
  }
  function show(q) {
    focus = q;
    const layer = byId("focus");
    if (layer) layer.replaceChildren();
    tip.hidden = !q;
    highlight(q ? q.line.k : null);
    if (!q) return;
    layer.append(
      shape("line", { x1: q.px, x2: q.px, y1: scene.box.top, y2: scene.box.bottom, stroke: "var(--soft)", "stroke-dasharray": "2 3" }),
      shape("circle", { cx: q.px, cy: q.py, r: 5, fill: `var(--c${q.line.run.colour})`, stroke: "var(--panel)", "stroke-width": 2 }));
    const step = `step ${q.p.step.toLocaleString("en-GB")}`;
    const cost = scene.axis === "step" ? "" : `, ${spent(q.p.x, scene.axis)}${scene.axis === "work" ? " gradients" : ""}`;
    const ends = q.line.run.seeds > 1 ? [`median of ${q.line.run.seeds} seeds; half are from ${bound(q.p.low)} to ${bound(q.p.high)}`, node("br")] : [];
    tip.replaceChildren(node("b", {}, q.line.run.label), `${byId("measure").value} ${measured(q.p.y)}`, node("br"), ...ends, step + cost);
    place(q);
  }
  const bound = (v) => (Number.isFinite(v) ? measured(v) : v > 0 ? "∞" : "−∞");
  function place(q) {
    const ratio = plot.clientWidth / scene.width, w = tip.offsetWidth, h = tip.offsetHeight;
    const x = q.px * ratio, y = q.py * ratio;
    const left = x + 14 + w > plot.clientWidth ? Math.max(0, x - w - 14) : x + 14;
    tip.style.transform = `translate(${left}px, ${Math.max(0, y - h - 10)}px)`;
  }
  function highlight(k) {
    for (const each of chart.querySelectorAll("[data-line]")) {
      const own = Number(each.dataset.line) === k;
      each.setAttribute("stroke-width", own ? 3 : 2);
      each.setAttribute("opacity", k === null || own ? 1 : 0.45);
    }
  }
  function moved(event) {
    if (!scene) return;
    const at = chart.getBoundingClientRect(), ratio = scene.width / at.width;
    show(nearest((event.clientX - at.left) * ratio, (event.clientY - at.top) * ratio));
  }
  function pressed(event) {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key], other = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!scene || !scene.flat.length || !(turn || other)) return;
    event.preventDefault();
    if (!focus) return show(scene.flat[0]);
    if (turn) {
      const next = scene.flat[scene.flat.indexOf(focus) + turn];
      return show(next && next.line === focus.line ? next : focus);
    }
    const own = scene.drawn.filter((l) => scene.flat.some((q) => q.line === l));
    const line = own[(own.indexOf(focus.line) + other + own.length) % own.length];
    const same = scene.flat.filter((q) => q.line === line);
    show(same.reduce((a, b) => (Math.abs(b.px - focus.px) < Math.abs(a.px - focus.px) ? b : a)));
  }

  // ---- legend, download ----
  function legend() {
    const entries = data.runs.map((run, k) => {
      const button = node("button", { type: "button", "aria-pressed": String(!hidden.has(k)), title: "click to hide or show" },
        mark(run), run.label);
      button.addEventListener("click", () => { hidden.has(k) ? hidden.delete(k) : hidden.add(k); refresh(); legend.focus(k); });
      button.addEventListener("pointerenter", () => highlight(hidden.has(k) ? null : k));
      button.addEventListener("pointerleave", () => highlight(null));
      return button;
    });
    if (data.runs.length > 1) {
      const every = hidden.size > 0, text = every ? "Show all" : "Hide all";
      const button = node("button", { type: "button", class: "all" }, text);
      button.addEventListener("click", () => {
        hidden.clear();
        if (!every) data.runs.forEach((_, k) => hidden.add(k));
        refresh();
      });
      entries.push(button);
    }
    byId("legend").replaceChildren(...entries);
  }
  legend.focus = (k) => byId("legend").children[k].focus({ preventScroll: true });

  function picture() { // the curves with their legend, in colours for paper
    show(null);
    const copy = chart.cloneNode(true), { width, height } = chart.viewBox.baseVal;
    const shown = data.runs.filter((_, k) => !hidden.has(k));
    shown.forEach((run, i) => {
      const y = height + 14 + 20 * i;
      copy.append(
        shape("line", { x1: 64, x2: 94, y1: y, y2: y, stroke: `var(--c${run.colour})`, "stroke-width": 2, "stroke-dasharray": run.dash }),
        shape("text", { x: 102, y, dy: "0.35em", "font-size": 13, fill: "var(--ink)" }, run.label));
    });
    const full = height + 20 * shown.length + 12;
    for (const name of ["id", "tabindex", "role", "aria-label", "class"]) copy.removeAttribute(name);
    const all = { xmlns: SVG, width, height: full, viewBox: `0 0 ${width} ${full}`, "font-family": "system-ui, Helvetica, Arial, sans-serif" };
    for (const [name, value] of Object.entries(all)) copy.setAttribute(name, value);
    copy.prepend(shape("rect", { width, height: full, fill: "#ffffff" }));
    return new XMLSerializer().serializeToString(copy).replace(/var\(--(\w+)\)/g, (_, name) => data.paper[name] || "#000000");
  }
  function download() {
    const link = node("a", { download: `${byId("measure").value.replace(/[^\w-]+/g, "_") || "curves"}.svg` });
    link.href = URL.createObjectURL(new Blob([picture()], { type: "image/svg+xml" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // ---- targets ----
  function reach() {
    const measure = byId("target-measure").value, axis = byId("currency").value;
    const rows = data.runs.map((run) => (run.reach[measure] || data.targets.map(() => null)).map((step) =>
      step === null || run.per[axis] === null ? null : step * run.per[axis]));
    // A run in which more seeds gave no answer than in another one is not the best.
    const fewest = Math.min(...data.runs.map((run) => run.lost));
    const best = data.targets.map((_, j) => Math.min(...rows.map((row, k) =>
      (row[j] === null || data.runs[k].lost > fewest ? Infinity : row[j]))));
    const shown = data.targets.map((_, j) => j).filter((j) => rows.some((row) => row[j] !== null));
    const head = node("tr", {}, node("th", { scope: "col" }, "Run"), ...shown.map((j) =>
      node("th", { scope: "col", class: "n" }, `${power(Math.round(Math.log10(data.targets[j])))} of the start`)));
    const body = data.runs.map((run, k) => node("tr", {}, node("th", { scope: "row" }, node("span", { class: "run" }, mark(run), node("span", {}, run.label))),
      ...shown.map((j) => node("td", { class: rows.length > 1 && run.lost === fewest && rows[k][j] === best[j] ? "n best" : "n" },
        rows[k][j] === null ? "–" : spent(rows[k][j], axis)))));
    byId("reach").replaceChildren(...(shown.length ? [node("thead", {}, head), node("tbody", {}, ...body)] : []));
    const zero = data.runs.filter((run) => run.zero.includes(measure)).length;
    byId("reach-note").textContent = (shown.length ? "" : ". No run reached a hundredth of its start") + (zero
      ? ", or the measure is not positive at the start, as a disagreement of agents that start together" : "");
  }

  function refresh() { legend(); draw(); }
  function rescale() { byId("log-y").checked = measureNamed(byId("measure").value).log; draw(); }
  function begin() {
    const named = data.measures.map((m) => [m.name, titled(m)]);
    const axes = Object.entries(AXES).filter(([axis]) => data.runs.some((run) => run.per[axis] !== null));
    options(byId("measure"), named, data.measure);
    const targets = byId("targets") !== null; // not where nothing was reached
    if (targets) options(byId("target-measure"), named, data.target);
    options(byId("axis"), axes.map(([axis, a]) => [axis, a.name]), "step");
    if (targets) options(byId("currency"), axes.map(([axis, a]) => [axis, a.unit]), "step");
    byId("measure").addEventListener("change", rescale);
    for (const id of ["axis", "log-x", "log-y"]) byId(id).addEventListener("change", draw);
    if (targets) for (const id of ["target-measure", "currency"]) byId(id).addEventListener("change", reach);
    byId("download").addEventListener("click", download);
    chart.addEventListener("pointermove", moved);
    chart.addEventListener("pointerdown", moved);
    chart.addEventListener("pointerleave", () => show(null));
    chart.addEventListener("keydown", pressed);
    chart.addEventListener("blur", () => show(null));
    let folded = [];
    addEventListener("beforeprint", () => {
      folded = [...document.querySelectorAll("details:not([open])")];
      for (const each of folded) each.open = true;
    });
    addEventListener("afterprint", () => { for (const each of folded) each.open = false; });
    byId("log-y").checked = measureNamed(data.measure).log;
    if (targets) reach();
    refresh();
    let width = plot.clientWidth;
    new ResizeObserver(() => { if (plot.clientWidth !== width) { width = plot.clientWidth; draw(); } }).observe(plot);
    document.documentElement.dataset.ready = "yes";
  }
  begin();
})();
