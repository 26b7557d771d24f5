"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const store = "bilevel-review-" + data.key;
const PAGE = 200;
let decisions = {}, past = [], place = 0, shown = [], rows = 0;
try { ({ decisions, past } = JSON.parse(localStorage.getItem(store)) || { decisions, past }); } catch { /* begin anew */ }

const kept = () => { try { localStorage.setItem(store, JSON.stringify({ decisions, past })); } catch { at("told").textContent = "This browser keeps nothing: save your decisions before you leave."; } };
const apart = (text) => `\u2068${text}\u2069`;  // a label from right to left turns nothing else
const percent = (p) => p > 0.995 ? "over 99 %" : Math.round(100 * p) + " %";
const fill = (select, words, first) => select.replaceChildren(...[first, ...words].map((word, i) => new Option(word, i ? word : "")));

function filter() {
  const text = at("search").value.toLowerCase(), which = at("which").value;
  shown = data.rows.filter((row) => (!at("given").value || row.label === at("given").value)
    && (!at("likely").value || row.likely === at("likely").value)
    && (which === "picked" ? row.picked : row.flagged && (!which || (row.row in decisions) === (which === "done")))
    && (!text || row.cells.some((cell) => cell.toLowerCase().includes(text))));
}

function draw() {
  const mine = at("which").value === "picked" ? "picked" : "flagged";
  const all = data.rows.filter((row) => row[mine]), done = all.filter((row) => row.row in decisions).length;
  at("count").textContent = `${done} of ${all.length} ${mine === "picked" ? "rows picked at random" : "flagged rows"} decided; ${shown.length} rows here`;
  at("progress").value = all.length ? done / all.length : 1;
  at("undo").disabled = !past.length;
  at("save").disabled = !Object.keys(decisions).length;
  const table = at("view").getAttribute("aria-pressed") === "true";
  at("one").hidden = table; at("all").hidden = !table;
  if (table) drawTable(); else drawRow();
}

function drawRow() {
  const row = shown[place];
  for (const id of ["right", "wrong", "other", "skip"]) at(id).disabled = !row;
  at("back").disabled = place === 0;
  at("labels").hidden = !row;
  if (!row) { at("heading").textContent = "No more rows here"; at("why").textContent = ""; at("cells").replaceChildren(); at("wrong").textContent = "Wrong"; return; }
  at("heading").textContent = `Row ${row.row}`;
  at("label").textContent = row.label;
  at("guess").textContent = `${apart(row.likely)} (${row.sure})`;
  at("why").textContent = `Suspicion: ${percent(row.wrong)}.`
    + (row.spoke.length ? ` What speaks for “${apart(row.likely)}”: ${row.spoke.map(apart).join(", ")}.` : "")
    + (row.near.length ? ` The rows most like it: ${row.near.map(([n, label]) => `${n} (${apart(label)})`).join(", ")}.` : "")
    + (row.row in decisions ? ` You decided: ${apart(decisions[row.row])}.` : "");
  at("wrong").disabled = row.likely === row.label;
  at("wrong").replaceChildren(`Wrong: it is “${apart(row.likely)}” `, Object.assign(document.createElement("kbd"), { textContent: "W" }));
  if (data.classes) fill(at("other"), data.classes, "choose…"); else at("other").value = "";
  at("cells").replaceChildren(...data.columns.flatMap((name, i) => row.cells[i] === "" ? [] : [
    Object.assign(document.createElement("dt"), { textContent: name }),
    Object.assign(document.createElement("dd"), { textContent: row.cells[i] })]));
}

function line(kind, words) {
  const tr = document.createElement("tr");
  tr.replaceChildren(...words.map((word) => { const cell = document.createElement(kind); cell.append(word); if (kind === "th") cell.scope = "col"; return cell; }));
  return tr;
}

function drawTable() {
  at("head").replaceChildren(line("th", ["row", "decide", "label", "likely", "suspicion", ...data.columns]));
  rows = Math.max(rows, PAGE);
  at("body").replaceChildren(...shown.slice(0, rows).map((row) => {
    const choose = document.createElement(data.classes ? "select" : "input");
    if (data.classes) fill(choose, data.classes, "undecided"); else choose.size = 8;
    choose.value = decisions[row.row] ?? "";
    choose.setAttribute("aria-label", `Label of row ${row.row}`);
    choose.addEventListener("change", () => { decide(row, choose.value, false); });
    const tr = line("td", [String(row.row), choose, row.label, row.likely, percent(row.wrong), ...row.cells]);
    if (row.row in decisions) tr.className = "done";
    return tr;
  }));
  at("more").hidden = shown.length <= rows;
}

function decide(row, label, again = true) {
  past.push([row.row, decisions[row.row] ?? null]);
  if (label) decisions[row.row] = label; else delete decisions[row.row];
  kept();
  at("told").textContent = label ? `Row ${row.row}: ${label}.` : `Row ${row.row} is undecided.`;
  if (again) { const open = at("which").value === "open"; filter(); if (!open) place += 1; place = Math.min(place, shown.length); }
  draw();
}

function undo() {
  const last = past.pop();
  if (!last) return;
  if (last[1] === null) delete decisions[last[0]]; else decisions[last[0]] = last[1];
  kept(); filter();
  place = Math.max(0, shown.findIndex((row) => row.row === last[0]));
  at("told").textContent = `Row ${last[0]}: taken back.`;
  draw();
}

function save() {
  const quote = (text) => `"${String(text).replaceAll('"', '""')}"`;
  const byRow = Object.fromEntries(data.rows.map((row) => [row.row, row]));
  const lines = Object.entries(decisions).filter(([n]) => n in byRow).map(([n, label]) =>
    [n, quote(label), label === byRow[n].label ? "right" : "wrong", byRow[n].picked ? "at random" : "as suspicious"].join(","));
  const text = "\ufeff" + [["row", quote(data.label), "decision", "picked"].join(","), ...lines].join("\r\n") + "\r\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "decisions.csv";
  link.click();
  at("told").textContent = `${lines.length} decisions saved as decisions.csv.`;
}

const act = {
  right: () => shown[place] && decide(shown[place], shown[place].label),
  wrong: () => shown[place] && !at("wrong").disabled && decide(shown[place], shown[place].likely),
  skip: () => { if (place < shown.length) { place += 1; draw(); } },
  back: () => { place = Math.max(0, place - 1); draw(); },
  undo,
};
if (!data.classes) at("other").replaceWith(Object.assign(document.createElement("input"), { id: "other", size: 8, autocomplete: "off", inputMode: "decimal" }));
for (const [id, run] of Object.entries(act)) at(id).addEventListener("click", run);
at("save").addEventListener("click", save);
at("more").addEventListener("click", () => { rows += PAGE; drawTable(); });
at("other").addEventListener("change", () => { if (at("other").value) decide(shown[place], at("other").value); });
at("view").addEventListener("click", () => { const on = at("view").getAttribute("aria-pressed") !== "true"; at("view").setAttribute("aria-pressed", on); rows = 0; draw(); });
for (const [id, event] of [["given", "change"], ["likely", "change"], ["which", "change"], ["search", "input"]])
  at(id).addEventListener(event, () => { place = 0; rows = 0; filter(); draw(); });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(event.target.tagName)) return;
  const run = { r: act.right, w: act.wrong, s: act.skip, b: act.back, u: undo }[event.key.toLowerCase()];
  if (run && !at("one").hidden) { event.preventDefault(); run(); at("one").focus(); }
});
fill(at("given"), [...new Set(data.rows.map((row) => row.label))].sort(), "all");
fill(at("likely"), [...new Set(data.rows.map((row) => row.likely))].sort(), "all");
for (const id of ["given", "likely"]) at(id).parentElement.hidden = !data.classes;
if (!data.rows.some((row) => row.flagged)) at("which").value = "picked";
filter(); draw();
