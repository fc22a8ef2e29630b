"use strict";
// The timeline viewer. Bars of a lane are ordered by start; bars under a pixel are drawn once per pixel and found
// by bisection, so a redraw costs pixels times lanes, however many bars there are.
const traceviewTimeline = async (host, item) => {
  const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };
  const HEIGHT = { steps: 17, layers: 15, stream: 20, exposed: 12 };
  const [AXIS, MAP, GAP, GUTTER] = [22, 44, 12, 128];

  const unpack = async () => {
    const packed = Uint8Array.from(atob(item.data), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const buffer = await new Response(stream).arrayBuffer();
    let offset = 0;
    const column = (type, count) => {
      const bytes = count * TYPES[type].BYTES_PER_ELEMENT;
      const values = new TYPES[type](buffer.slice(offset, offset + bytes));
      offset += bytes;
      return values;
    };
    return item.lanes.map((lane) => {
      const [gaps, dur, name, context, group] = lane.types.map((type) => column(type, lane.count));
      const start = new Float64Array(lane.count);
      const reach = new Float64Array(lane.count); // latest end so far: bars of a lane may overlap
      let [at, latest] = [0, 0];
      for (let i = 0; i < lane.count; i++) {
        at += gaps[i];
        start[i] = at;
        latest = Math.max(latest, at + dur[i]);
        reach[i] = latest;
      }
      return { ...lane, start, dur, name, context, group, reach };
    });
  };

  // first place from which values exceed x
  const above = (values, x, from = 0) => {
    let low = from;
    let step = 1; // galloping: the place is mostly near
    while (low + step < values.length && values[low + step] <= x) { low += step; step *= 2; }
    let high = Math.min(low + step, values.length);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > x) high = middle; else low = middle + 1;
    }
    return low;
  };

  const duration = (ns) => {
    const [unit, name] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    const value = ns / unit;
    return `${unit === 1 ? Math.round(value) : value.toPrecision(Math.max(4, Math.ceil(Math.log10(value + 1))))} ${name}`;
  };
  const stamp = (ns) => `${(ns / 1e6).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 6 })} ms`;

  const make = (tag, className, parent) => {
    const element = document.createElement(tag);
    element.className = className;
    parent.append(element);
    return element;
  };

  const lanes = await unpack();
  let y = AXIS + MAP + GAP;
  let rank = null;
  for (const lane of lanes) {
    if (lane.rank !== rank) { y += rank === null ? 0 : GAP; rank = lane.rank; lane.first = true; }
    lane.y = y;
    lane.height = HEIGHT[lane.kind];
    y += lane.height + 2;
  }
  const height = y + 6;

  const box = make("div", "timeline", host);
  const bar = make("div", "timeline-bar", box);
  const search = make("input", "", bar);
  search.type = "search";
  search.placeholder = "find a kernel, layer 3, dispatch …";
  search.setAttribute("aria-label", "Find bars by name or context");
  const found = make("span", "timeline-found", bar);
  const button = (label, title, act) => {
    const made = make("button", "", bar);
    [made.type, made.textContent, made.title] = ["button", label, title];
    made.addEventListener("click", act);
  };
  const frame = make("div", "timeline-frame", box);
  const canvas = make("canvas", "", frame);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Timeline. Left and right move, plus and minus zoom, 0 shows all, brackets step through the bars of a row, up and down change the row, n finds the next match.");
  const tip = make("div", "timeline-tip", frame);
  tip.hidden = true;
  const said = make("p", "timeline-said", box);
  said.setAttribute("aria-live", "polite");
  const pen = canvas.getContext("2d");

  const view = { from: 0, to: Math.max(item.span, 1), width: 0 };
  let [chosen, hovered, matching, scheduled] = [null, null, null, false];
  const wide = () => view.width - GUTTER;
  const toX = (ns) => GUTTER + ((ns - view.from) / (view.to - view.from)) * wide();
  const toNs = (x) => view.from + ((x - GUTTER) / wide()) * (view.to - view.from);
  const matches = (lane, i) => !matching || matching.names[lane.name[i]] || matching.contexts[lane.context[i]];

  // rectangles of one row, gathered first and painted colour by colour: changing the colour is what costs
  let room = 4096;
  let [xs, widths, tints] = [new Float32Array(room), new Float32Array(room), new Uint8Array(room)];
  const FAINT = 128; // added to a bar's group where a search is on and does not find it
  const gather = (lane, from, to, left, right) => {
    const scale = (right - left) / (to - from);
    const perPixel = 1 / scale;
    let [n, last, i] = [0, -1, above(lane.reach, from)];
    while (i < lane.count && lane.start[i] < to) {
      const x = Math.max(left, left + (lane.start[i] - from) * scale);
      const width = Math.max(Math.min(right, left + (lane.start[i] + lane.dur[i] - from) * scale) - x, 1);
      const faint = matching !== null && !matches(lane, i);
      if (!faint || x + width > last + 0.5) {
        if (n === room) {
          room *= 2;
          [xs, widths, tints] = [xs, widths, tints].map((old) => { const grown = new old.constructor(room); grown.set(old); return grown; });
        }
        [xs[n], widths[n], tints[n]] = [x, width, lane.group[i] + (faint ? FAINT : 0)];
        places[n++] = i;
        last = x + width;
      }
      // nothing that begins within this pixel and ends in it can be seen: go on behind it
      const behind = lane.start[i] + perPixel;
      i = width > 1 || matching ? i + 1 : Math.max(i + 1, Math.min(above(lane.start, behind, i), above(lane.reach, behind, i)));
    }
    return n;
  };
  const places = [];
  // bars of a pixel or two are many: they are set in one row of pixels, which is then stretched to the lane's height
  const row = document.createElement("canvas");
  const rowPen = row.getContext("2d");
  const pixel = (tint) => {
    const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(item.groups[tint % FAINT][1].slice(at, at + 2), 16));
    return (((tint >= FAINT ? 41 : 255) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  };
  const shades = Uint32Array.from({ length: 256 }, (_, tint) => (tint % FAINT < item.groups.length ? pixel(tint) : 0));
  const THIN = 2.5;
  const thin = (pen, n, y, height, left, right) => {
    const ratio = window.devicePixelRatio || 1;
    const size = Math.max(Math.ceil((right - left) * ratio), 1);
    if (row.width !== size || row.height !== 1) [row.width, row.height] = [size, 1];
    const image = rowPen.createImageData(size, 1);
    const pixels = new Uint32Array(image.data.buffer);
    for (let k = 0; k < n; k++) {
      if (widths[k] > THIN) continue;
      const from = Math.floor((xs[k] - left) * ratio);
      pixels.fill(shades[tints[k]], from, Math.max(from + 1, Math.round((xs[k] - left + widths[k]) * ratio)));
    }
    rowPen.putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(row, 0, 0, size, 1, left, y, size / ratio, height);
  };
  const bars = (pen, lane, y, height, from, to, left, right) => {
    const n = gather(lane, from, to, left, right);
    const seen = new Uint8Array(256);
    let many = 0;
    for (let k = 0; k < n; k++) if (widths[k] > THIN) seen[tints[k]] = 1; else many++;
    if (many) thin(pen, n, y, height, left, right);
    for (let tint = 0; tint < 256; tint++) {
      if (!seen[tint]) continue;
      pen.globalAlpha = tint >= FAINT ? 0.16 : 1;
      pen.fillStyle = item.groups[tint % FAINT][1];
      for (let k = 0; k < n; k++) if (tints[k] === tint && widths[k] > THIN) pen.fillRect(xs[k], y, widths[k] > 3 ? widths[k] - 0.6 : widths[k], height);
    }
    pen.globalAlpha = 1;
    if (height < 14) return;
    pen.fillStyle = "#fff";
    pen.font = "11px ui-monospace, Menlo, Consolas, monospace";
    pen.textBaseline = "middle";
    for (let k = 0; k < n; k++) if (widths[k] >= 44 && tints[k] < FAINT) label(pen, item.names[lane.name[places[k]]], xs[k] + 4, y + height / 2, widths[k] - 8);
  };

  const label = (pen, text, x, y, width) => {
    const letters = Math.floor(width / 6.2);
    if (letters < 3) return;
    pen.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, x, y + 0.5);
  };

  const axis = (ink, line) => {
    const rough = ((view.to - view.from) / Math.max(wide(), 1)) * 110;
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      pen.fillStyle = line;
      pen.fillRect(toX(at), MAP, 1, height - MAP);
      pen.fillStyle = ink;
      pen.fillText(step >= 1e6 ? `${at / 1e6} ms` : `${(at / 1e3).toLocaleString("en")} µs`, toX(at) + 4, MAP + AXIS / 2);
    }
  };

  const map = document.createElement("canvas"); // everything, small; drawn once for each width
  const drawMap = (ratio) => {
    map.width = Math.max(1, Math.round(wide() * ratio));
    map.height = MAP * ratio;
    const small = map.getContext("2d");
    small.scale(ratio, ratio);
    const streams = lanes.filter((lane) => lane.kind === "stream" || lane.kind === "exposed");
    const each = MAP / Math.max(streams.length, 1);
    streams.forEach((lane, row) => bars(small, lane, row * each, Math.max(each - 0.5, 0.5), 0, Math.max(item.span, 1), 0, wide()));
  };

  const draw = () => {
    scheduled = false;
    const began = performance.now();
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(frame.clientWidth, 200);
    if (width !== view.width || canvas.height !== Math.round(height * ratio)) {
      view.width = width;
      [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      drawMap(ratio);
    }
    const [ink, quiet, line] = [getComputedStyle(box).color, getComputedStyle(found).color, getComputedStyle(search).borderTopColor];
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.drawImage(map, GUTTER, 0, wide(), MAP);
    pen.fillStyle = "#7a7f8755";
    const [left, right] = [view.from, view.to].map((ns) => GUTTER + (ns / Math.max(item.span, 1)) * wide());
    pen.fillRect(GUTTER, 0, left - GUTTER, MAP);
    pen.fillRect(right, 0, width - right, MAP);
    pen.strokeStyle = ink;
    pen.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 2), MAP - 1);
    axis(quiet, line);
    for (const lane of lanes) {
      pen.font = `${lane.first ? "600 " : ""}11.5px system-ui, sans-serif`;
      pen.textBaseline = "middle";
      pen.fillStyle = lane.first ? ink : quiet;
      const text = lane.first ? `rank ${lane.rank} · ${lane.label}` : lane.label;
      pen.fillText(text, 2, lane.y + lane.height / 2, GUTTER - 8);
      bars(pen, lane, lane.y, lane.height, view.from, view.to, GUTTER, width);
    }
    for (const one of [chosen, hovered]) if (one) outline(one, ink);
    host.dataset.redraw = (performance.now() - began).toFixed(1);
  };

  const outline = ({ lane, i }, ink) => {
    const [x, end] = [toX(lane.start[i]), toX(lane.start[i] + lane.dur[i])];
    if (end < GUTTER || x > view.width) return;
    pen.strokeStyle = ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(Math.max(x, GUTTER) - 0.5, lane.y - 0.5, Math.max(Math.min(end, view.width) - Math.max(x, GUTTER), 2) + 1, lane.height + 1);
    pen.lineWidth = 1;
  };
  const redraw = () => { if (!scheduled) { scheduled = true; requestAnimationFrame(draw); } };

  const show = (from, to) => {
    const least = Math.min(200, item.span || 1);
    const span = Math.min(Math.max(to - from, least), Math.max(item.span, 1));
    view.from = Math.min(Math.max(from, 0), Math.max(item.span, 1) - span);
    view.to = view.from + span;
    redraw();
  };
  const zoom = (factor, at = (view.from + view.to) / 2) => show(at - (at - view.from) * factor, at + (view.to - at) * factor);
  const move = (share) => { const by = (view.to - view.from) * share; show(view.from + by, view.to + by); };

  const describe = ({ lane, i }) => {
    const context = item.contexts[lane.context[i]];
    return [
      item.names[lane.name[i]],
      `${duration(lane.dur[i])}, from ${stamp(lane.start[i])}`,
      `rank ${lane.rank}, ${lane.label}${context ? ` · ${context}` : ""}`,
    ];
  };
  const choose = (one, { follow = false } = {}) => {
    chosen = one;
    said.textContent = one ? describe(one).join(" · ") : "";
    if (one && follow) {
      const [start, dur] = [one.lane.start[one.i], one.lane.dur[one.i]];
      if (start < view.from || start + dur > view.to) {
        const span = Math.max(view.to - view.from, dur * 1.2);
        show(start + dur / 2 - span / 2, start + dur / 2 + span / 2);
      }
    }
    redraw();
  };

  const under = (x, y) => {
    const lane = lanes.find((one) => y >= one.y && y < one.y + one.height);
    if (!lane || x < GUTTER) return null;
    const [at, near] = [toNs(x), (2 * (view.to - view.from)) / wide()];
    let best = null;
    for (let i = above(lane.start, at + near) - 1, looked = 0; i >= 0 && looked < 4000 && lane.reach[i] > at - near; i--, looked++) {
      if (lane.start[i] <= at && at < lane.start[i] + lane.dur[i]) return { lane, i };
      if (best === null && lane.start[i] + lane.dur[i] > at - near) best = { lane, i };
    }
    return best;
  };

  const place = (event) => { const area = canvas.getBoundingClientRect(); return [event.clientX - area.left, event.clientY - area.top]; };
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    dragged = { x, from: view.from, to: view.to, onMap: y < MAP, moved: false };
    canvas.setPointerCapture(event.pointerId);
    if (dragged.onMap) centre(x);
  });
  const centre = (x) => {
    const at = ((x - GUTTER) / wide()) * item.span;
    const span = view.to - view.from;
    show(at - span / 2, at + span / 2);
  };
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (dragged) {
      dragged.moved ||= Math.abs(x - dragged.x) > 3;
      if (dragged.onMap) centre(x);
      else {
        const by = ((dragged.x - x) / wide()) * (dragged.to - dragged.from);
        show(dragged.from + by, dragged.to + by);
      }
      return;
    }
    const one = under(x, y);
    if (one?.lane !== hovered?.lane || one?.i !== hovered?.i) { hovered = one; redraw(); }
    tip.hidden = !one;
    if (one) {
      tip.replaceChildren(...describe(one).map((line) => { const row = document.createElement("div"); row.textContent = line; return row; }));
      tip.style.left = `${Math.min(x + 14, Math.max(view.width - 340, 0))}px`;
      tip.style.top = `${y + 16}px`;
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (dragged && !dragged.moved && !dragged.onMap) choose(under(...place(event)));
    dragged = null;
  });
  canvas.addEventListener("pointerleave", () => { [hovered, tip.hidden] = [null, true]; redraw(); });
  canvas.addEventListener("dblclick", (event) => { const one = under(...place(event)); if (one) fit(one); });
  const fit = ({ lane, i }) => { const margin = Math.max(lane.dur[i] * 0.2, 100); show(lane.start[i] - margin, lane.start[i] + lane.dur[i] + margin); };
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    if (event.shiftKey) move(Math.sign(event.deltaY || event.deltaX) * 0.1);
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, toNs(place(event)[0]));
  }, { passive: false });

  // the next bar that matches, in order of time and then of rows
  const next = (sign) => {
    const from = chosen ? [chosen.lane.start[chosen.i], lanes.indexOf(chosen.lane), chosen.i] : [sign > 0 ? -1 : Infinity, 0, 0];
    const order = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
    let best = null;
    lanes.forEach((lane, row) => {
      let i = sign > 0 ? above(lane.start, from[0] - 1) : above(lane.start, from[0]) - 1;
      for (; i >= 0 && i < lane.count; i += sign) {
        const key = [lane.start[i], row, i];
        if (sign * order(key, from) <= 0 || !matches(lane, i)) continue;
        if (!best || sign * order(key, best.key) < 0) best = { key, lane, i };
        break;
      }
    });
    if (best) choose(best, { follow: true });
  };
  const count = () => lanes.reduce((sum, lane) => {
    let own = 0;
    for (let i = 0; i < lane.count; i++) own += matches(lane, i) ? 1 : 0;
    return sum + own;
  }, 0);
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    const holds = (text) => text.toLowerCase().includes(wanted);
    matching = wanted ? { names: item.names.map(holds), contexts: item.contexts.map(holds) } : null;
    found.textContent = wanted ? `${count().toLocaleString("en")} bars` : "";
    redraw();
  });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") next(event.shiftKey ? -1 : 1); });
  button("‹", "Previous match", () => next(-1));
  button("›", "Next match", () => next(1));
  button("−", "Zoom out", () => zoom(1.6));
  button("+", "Zoom in", () => zoom(0.625));
  button("all", "Show everything", () => show(0, item.span));

  const along = (by) => { if (chosen && chosen.i + by >= 0 && chosen.i + by < chosen.lane.count) choose({ lane: chosen.lane, i: chosen.i + by }, { follow: true }); else if (!chosen) next(1); };
  const across = (by) => {
    const row = chosen ? lanes.indexOf(chosen.lane) + by : 0;
    const lane = lanes[row];
    if (lane?.count) choose({ lane, i: Math.max(above(lane.start, chosen ? chosen.lane.start[chosen.i] : view.from) - 1, 0) }, { follow: true });
  };
  const KEYS = {
    ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), a: () => move(-0.15), d: () => move(0.15),
    "+": () => zoom(0.625), "=": () => zoom(0.625), w: () => zoom(0.625), "-": () => zoom(1.6), s: () => zoom(1.6),
    0: () => show(0, item.span), Home: () => show(0, item.span), "[": () => along(-1), "]": () => along(1),
    ArrowUp: () => across(-1), ArrowDown: () => across(1), n: () => next(1), p: () => next(-1),
    Enter: () => { if (chosen) fit(chosen); }, Escape: () => choose(null), "/": () => search.focus(),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  new ResizeObserver(redraw).observe(frame);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  draw();
  host.dataset.bars = lanes.reduce((sum, lane) => sum + lane.count, 0);
  return { show, draw };
};
