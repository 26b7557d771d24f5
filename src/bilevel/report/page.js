(() => {
  "use strict";

  const colours = JSON.parse(document.getElementById("colours").textContent);
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () => prefersDark.matches && !printing;

  // A copy of a figure in the colours of the page's theme.
  function recolour(value) {
    if (typeof value === "string") {
      return isDark() && Object.hasOwn(colours.dark, value) ? colours.dark[value] : value;
    }
    if (Array.isArray(value)) return value.map(recolour);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, recolour(part)]));
  }

  function themed(layout) {
    const theme = colours.themes[isDark() ? "dark" : "light"];
    const axis = {
      gridcolor: theme.rule,
      linecolor: theme.muted,
      zerolinecolor: theme.rule,
      tickcolor: theme.rule,
      automargin: true,
    };
    const result = {
      margin: { l: 48, r: 12, t: 8, b: 40 },
      colorway: recolour(colours.colourway),
      hovermode: "closest",
      ...layout,
      autosize: true,
      showlegend: false,
      paper_bgcolor: theme.paper,
      plot_bgcolor: theme.paper,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: theme.muted },
      hoverlabel: { bgcolor: theme.panel, bordercolor: theme.rule, font: { color: theme.ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.muted, activecolor: theme.accent },
      xaxis: { ...layout.xaxis },
      yaxis: { ...layout.yaxis },
    };
    for (const key of Object.keys(result)) {
      if (/^[xy]axis\d*$/.test(key)) result[key] = { ...axis, ...result[key] };
    }
    return result;
  }

  const groupOf = (trace) => trace.legendgroup || trace.name || "";

  // plotly would draw a line from far left, at a height that nothing was measured at.
  function dropNonPositive(trace) {
    if (Array.isArray(trace.x)) trace.x = trace.x.map((x) => (x > 0 ? x : null));
  }

  const CONFIG = {
    displaylogo: false,
    responsive: true,
    showSendToCloud: false,
    plotlyServerURL: "",
    displayModeBar: window.matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };

  // The browser lays out for paper after "beforeprint", too late for a plot to measure its place.
  const PAPER = { single: { width: 680, height: 340 }, panel: { width: 335, height: 240 } };

  class Plots {
    constructor(root) {
      this.panels = JSON.parse(root.querySelector(".plot-data").textContent);
      this.nodes = [...root.querySelectorAll(".plot")];
      this.paper = this.nodes.length > 1 ? PAPER.panel : PAPER.single;
      this.legend = root.querySelector(".legend");
      this.logarithmic = root.querySelector(".logarithmic input");
      this.hidden = new Set();
      this.groups = this.findGroups();
      this.choose(Object.keys(this.panels[0])[0]);
      for (const radio of root.querySelectorAll("input[type=radio]")) {
        radio.addEventListener("change", () => this.choose(radio.value));
      }
      this.logarithmic?.addEventListener("change", () => this.draw());
    }

    // The traces that stand for a group in the legend, by the group's name.
    findGroups() {
      const groups = new Map();
      for (const figure of this.panels.flatMap((views) => Object.values(views))) {
        for (const trace of figure.data) {
          if (trace.showlegend !== false && trace.name && !groups.has(groupOf(trace))) {
            groups.set(groupOf(trace), trace);
          }
        }
      }
      return groups.size > 1 ? groups : new Map();
    }

    choose(view) {
      this.view = view;
      if (this.logarithmic) {
        this.logarithmic.checked = this.panels[0][view].layout.xaxis?.type === "log";
      }
      this.draw();
    }

    toggle(group) {
      if (!this.hidden.delete(group)) this.hidden.add(group);
      this.draw();
    }

    showOnly(group) {
      this.hidden = new Set([...this.groups.keys()].filter((other) => other !== group));
      this.draw();
    }

    draw() {
      this.drawLegend();
      this.nodes.forEach((node, index) => {
        const figure = recolour(this.panels[index][this.view]);
        for (const trace of figure.data) trace.visible = !this.hidden.has(groupOf(trace));
        const layout = themed(figure.layout);
        if (this.logarithmic) layout.xaxis.type = this.logarithmic.checked ? "log" : "linear";
        if (layout.xaxis.type === "log") figure.data.forEach(dropNonPositive);
        for (const axis of [layout.xaxis, layout.yaxis]) {
          if (axis.type === "log") axis.nticks ??= 5; // the powers of ten, without the 2 and the 5
        }
        layout.uirevision = `${this.view} ${layout.xaxis.type}`; // keep the zoom within a view
        if (printing) Object.assign(layout, this.paper, { autosize: false });
        Plotly.react(node, figure.data, layout, CONFIG);
      });
    }

    drawLegend() {
      for (const [group, trace] of this.groups) {
        let button = [...this.legend.children].find((child) => child.dataset.group === group);
        if (!button) {
          button = document.createElement("button");
          button.type = "button";
          button.dataset.group = group;
          button.title = "Click: show or hide. Double click: only this one.";
          button.append(document.createElement("span"), trace.name);
          button.addEventListener("click", () => this.toggle(group));
          button.addEventListener("dblclick", () => this.showOnly(group));
          this.legend.append(button);
        }
        button.setAttribute("aria-pressed", String(!this.hidden.has(group)));
        button.firstChild.replaceWith(swatch(trace));
      }
    }
  }

  const DASHES = { dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" };
  const MARKERS = {
    circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    square: "M-3.6-3.6h7.2v7.2h-7.2z",
    diamond: "M0-5L5 0L0 5L-5 0z",
    "triangle-up": "M0-5L4.6 3.4H-4.6z",
    x: "M-4-2.4L-2.4-4L0-1.6L2.4-4L4-2.4L1.6 0L4 2.4L2.4 4L0 1.6L-2.4 4L-4 2.4L-1.6 0z",
    cross: "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    star: "M0-5.5L1.5-1.8L5.3-1.6L2.3 .8L3.3 4.6L0 2.4L-3.3 4.6L-2.3 .8L-5.3-1.6L-1.5-1.8z",
  };

  // The line and marker of a trace, or a square of its colour.
  function swatch(trace) {
    const SVG = "http://www.w3.org/2000/svg";
    const make = (name, attributes) => {
      const element = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      return element;
    };
    const colour = recolour(trace.line?.color ?? trace.marker?.color ?? colours.colourway[0]);
    const drawing = make("svg", { viewBox: "-20 -8 40 16", "aria-hidden": "true" });
    if (trace.line) {
      const dash = DASHES[trace.line.dash] ?? "none";
      drawing.append(
        make("path", { d: "M-20 0H20", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }),
      );
    }
    const shape = MARKERS[trace.marker?.symbol] ?? (trace.line ? "" : "M-9-6H9V6H-9z");
    drawing.append(make("path", { d: shape, fill: colour }));
    return drawing;
  }

  function makeSortable(table) {
    const headings = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    if (body.rows.length < 2) return;
    const keyOf = (row, column) => {
      const { dataset, textContent } = row.cells[column];
      if (dataset.order === undefined) return textContent;
      const number = Number(dataset.order);
      return Number.isNaN(number) ? Infinity : number; // Python's inf and nan
    };
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const ascending = heading.getAttribute("aria-sort") !== "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        const compare = (a, b) =>
          typeof a === "number" && typeof b === "number"
            ? (a > b) - (a < b)
            : String(a).localeCompare(String(b), undefined, { numeric: true });
        const rows = [...body.rows].sort((a, b) => compare(keyOf(a, column), keyOf(b, column)));
        body.append(...(ascending ? rows : rows.reverse()));
      });
    });
  }

  document.querySelectorAll("table").forEach(makeSortable);
  const all = [...document.querySelectorAll(".plots")].map((root) => new Plots(root));
  const redraw = () => all.forEach((plots) => plots.draw());
  prefersDark.addEventListener("change", redraw);

  const folded = [...document.querySelectorAll("details")].filter((details) => !details.open);
  window.addEventListener("beforeprint", () => {
    printing = true;
    folded.forEach((details) => (details.open = true));
    redraw();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    folded.forEach((details) => (details.open = false));
    redraw();
  });
})();
