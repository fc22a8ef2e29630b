"use strict";
(async () => {
  const root = document.documentElement;
  const all = (selector, scope = document) => [...scope.querySelectorAll(selector)];

  const content = async (element) => {
    const text = element.textContent;
    if (!("packed" in element.dataset)) return text;
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };

  // theme: the system's until the button is pressed
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // tables: a click on a head sorts, another turns the order around; what is no number goes last
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = Number.parseFloat(text.replaceAll(",", ""));
    return row.cells[column].className === "n" ? (Number.isNaN(number) ? null : number) : text;
  };
  const sort = (head) => {
    const [table, column] = [head.closest("table"), head.cellIndex];
    const sign = head.ariaSort === "descending" ? 1 : -1;
    const compare = (a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
    };
    all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.ariaSort = sign > 0 ? "ascending" : "descending";
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
  };
  all("table.sortable th").forEach((head) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
  });

  // figures: drawn when they come near, or when there is nothing else to do, or before printing
  const library = document.getElementById("library");
  if (library) {
    const script = document.createElement("script");
    script.textContent = await content(library);
    document.body.append(script);
  }
  const drawn = new Map();
  const draw = (view) => {
    if (!drawn.has(view)) {
      const item = document.getElementById(`${view.id}-item`);
      drawn.set(view, content(item).then(JSON.parse).then(
        (parsed) => (parsed.timeline ? traceviewTimeline(view, parsed) : Bokeh.embed.embed_item(parsed, view)),
      ));
    }
    return drawn.get(view);
  };
  const shown = () => all(".view:not([hidden])");
  if (typeof Bokeh !== "undefined") {
    Bokeh.logger?.set_level?.("warn");
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
    }, { rootMargin: "300px" });
    all(".view").forEach((view) => near.observe(view));
    all(".views").forEach((label) => { label.hidden = false; });
    all(".views select").forEach((select) => select.addEventListener("change", () => {
      all(`#${select.dataset.figure} .view`).forEach((view, place) => { view.hidden = place !== Number(select.value); });
    }));
    const later = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
    const rest = () => {
      const view = shown().find((one) => !drawn.has(one));
      if (view) draw(view).then(() => later(rest));
    };
    later(rest);
  }
  addEventListener("beforeprint", () => {
    all("details").forEach((one) => { one.open = true; });
    shown().forEach(draw);
  });
  root.dataset.ready = "";
})();
