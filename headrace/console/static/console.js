// What a page gains where its browser runs scripts. Without them it does the same by loading the next page.
(() => {
  "use strict";

  // htmx makes elements of the console's own pages: no scripts, and no attribute is code.
  const rules = { createHTML: page => page, createScript: () => "" };
  const policy = window.trustedTypes?.createPolicy("headrace", rules) ?? rules;
  class NoCode {
    constructor() {
      throw new Error("A page of the console holds no code.");
    }
  }
  const walls = { init: api => api.initSecurity(policy, NoCode, NoCode) };
  const beforeAnything = { once: true };
  document.addEventListener(
    "htmx:before:process", () => htmx.registerExtension("headrace", walls), beforeAnything);

  // Who goes back before htmx listens has the address of one page over another. This page then gives way.
  document.addEventListener("htmx:before:process", () => {
    const { activation, currentEntry } = window.navigation ?? {};
    if (activation?.entry && activation.entry.key !== currentEntry.key) location.reload();
  }, beforeAnything);

  const main = () => document.getElementById("main");
  const looksAgain = event => event.detail.ctx?.sourceElement === main();

  // One element asks of itself. Whatever else says that it does, somebody else put there.
  const asks = ["action", "get", "post", "put", "patch", "delete", "query"];
  document.addEventListener("htmx:before:init", event => {
    const asking = asks.some(verb => event.target.hasAttribute(`hx-${verb}`));
    if (asking && event.target !== main()) event.preventDefault();
  });

  document.addEventListener("htmx:config:request", event => {
    delete event.detail.ctx.request.headers["HX-Current-URL"]; // Nobody reads it, and it may be long.
  });
  document.addEventListener("htmx:before:request", event => {
    if (document.hidden && looksAgain(event)) event.preventDefault();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) main().dispatchEvent(new Event("look"));
  });
  document.addEventListener("htmx:before:swap", event => {
    // An answer takes the place that the page has for it; parts that name another place are not ours.
    if (event.detail.tasks.some(task => task.type !== "main")) event.preventDefault();
  });

  // The next answer takes the attribute away again.
  const failed = () => main().setAttribute("data-failed", "");
  document.addEventListener("htmx:error", failed);
  document.addEventListener("htmx:response:error", event => {
    if (looksAgain(event)) failed();
  });

  const colour = name => () =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map();

  class Chart {
    constructor(place) {
      this.place = place;
      this.readout = document.createElement("p");
      this.readout.className = "readout";
      this.readout.setAttribute("aria-live", "polite");
      this.read();
      this.plot = new uPlot(this.options(), this.values(), place);
      place.append(this.readout);
      place.addEventListener("keydown", event => this.key(event));
      this.size = new ResizeObserver(() =>
        this.plot.setSize({ width: place.clientWidth, height: this.plot.height }));
      this.size.observe(place);
    }

    read() {
      this.said = this.place.dataset.chart;
      this.data = JSON.parse(this.said);
    }

    values() {
      return [this.data.x, this.data.y];
    }

    options() {
      const lines = { stroke: colour("--line") };
      const axis = { stroke: colour("--faint"), grid: lines, ticks: lines };
      const series = { stroke: colour("--link"), width: 1.5, points: { show: false } };
      const options = {
        width: this.place.clientWidth,
        height: 150,
        legend: { show: false },
        cursor: { y: false },
        scales: { x: { time: false } },
        axes: [axis, { ...axis, size: 60 }],
        series: [{}, series],
        hooks: { setCursor: [plot => this.tell(plot.cursor.idx)] },
      };
      if (this.data.kind === "bars") {
        Object.assign(series, { fill: colour("--link"), paths: uPlot.paths.bars({ size: [0.8, 60] }) });
        options.scales.x.range = (_, low, high) => [low - 0.5, high + 0.5];
        options.scales.y = { range: (_, low, high) => [Math.min(low, 0), high || 1] };
        options.axes[0] = { show: false };
      }
      return options;
    }

    tell(at) {
      const name = this.data.names?.[at] ?? `step ${this.data.x[at]}`;
      this.readout.textContent = at == null ? "" : `${name}: ${this.data.y[at]}`;
    }

    key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") this.plot.setData(this.values());
      if (!step) return;
      event.preventDefault();
      const last = this.data.x.length - 1;
      const from = this.plot.cursor.idx ?? (step > 0 ? -1 : last + 1);
      const to = this.data.x[Math.max(0, Math.min(last, from + step))];
      this.plot.setCursor({ left: this.plot.valToPos(to, "x"), top: 0 });
    }

    refresh() {
      if (this.said !== this.place.dataset.chart) {
        const { min, max } = this.plot.scales.x;
        const wasWhole = min <= this.data.x[0] && max >= this.data.x.at(-1);
        this.read();
        this.plot.setData(this.values(), wasWhole);
        if (!wasWhole) this.plot.redraw();
      }
      this.place.tabIndex = 0;
      this.place.setAttribute("role", "group");
      this.place.setAttribute("aria-label", `${this.data.label}. Arrow keys read its values.`);
    }

    end() {
      this.size.disconnect();
      this.plot.destroy();
    }
  }

  const draw = () => {
    for (const [place, chart] of charts) {
      if (place.isConnected) continue;
      chart.end();
      charts.delete(place);
    }
    for (const place of document.querySelectorAll(".chart")) {
      if (!charts.has(place)) charts.set(place, new Chart(place));
      charts.get(place).refresh();
    }
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const chart of charts.values()) chart.plot.redraw(false);
  });
  document.addEventListener("htmx:after:swap", event => {
    draw();
    // As after a page is loaded, a keyboard goes on at what is new.
    if (!looksAgain(event) && document.activeElement === document.body) {
      main().focus({ preventScroll: true });
    }
  });
  document.addEventListener("DOMContentLoaded", draw);
})();
