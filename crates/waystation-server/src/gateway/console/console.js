// The console asks for the status every two seconds and shows it. Text goes in as text, never as HTML.
"use strict";

const PERIOD_MS = 2000;
const PATIENCE_MS = 10000;
const POINTS = 90;
const at = (id) => document.getElementById(id);
const rates = new Map();
let status = null;
let leaving = null;

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = count || 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

const number = (value) => Math.round(value || 0).toLocaleString("en");
const when = (micros) => new Date(micros / 1000).toLocaleString();

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function list(id, pairs) {
  at(id).replaceChildren(...pairs.flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
}

async function ask(path, options) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS), ...options });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.reason || `the answer was ${answer.status}`);
  }
  return answer.json();
}

function chosen() {
  return status.databases.find((it) => it.name === at("database").value) || status.databases[0];
}

function showDatabases() {
  const select = at("database");
  const names = status.databases.map((it) => it.name);
  if (names.join("\n") === [...select.options].map((it) => it.value).join("\n")) return;
  const before = select.value;
  select.replaceChildren(...names.map((name) => element("option", name)));
  if (names.includes(before)) select.value = before;
}

function noteRates() {
  for (const database of status.databases) {
    const known = rates.get(database.name) || { points: [] };
    const writes = database.stats.visible_sequence;
    if (known.time !== undefined && status.time > known.time && writes >= known.writes) {
      known.points.push((writes - known.writes) / ((status.time - known.time) / 1e6));
      if (known.points.length > POINTS) known.points.shift();
    }
    known.time = status.time;
    known.writes = writes;
    rates.set(database.name, known);
  }
}

function showRate(database) {
  const points = (rates.get(database.name) || { points: [] }).points;
  const most = Math.max(1, ...points);
  const x = (index) => (300 * (POINTS - points.length + index)) / (POINTS - 1);
  const place = (rate, index) => `${x(index).toFixed(1)},${(78 - (rate / most) * 74).toFixed(1)}`;
  at("line").setAttribute("points", points.map(place).join(" "));
  if (points.length) {
    at("plot-text").textContent = `${number(points[points.length - 1])} writes/s now, at most ${number(most)} in the last ${span((points.length * PERIOD_MS) / 1000)}.`;
  }
}

function showFigures(database) {
  const { stats } = database;
  const devices = stats.devices || {};
  list("figures", [
    ["Devices", number(database.device_count)],
    ["Readings written", number(database.readings)],
    ["Write amplification", database.write_amplification === null ? "–" : database.write_amplification.toFixed(2)],
    ["Settled records", number(devices.settled_records)],
    ["Settling due", bytes(devices.replay_bytes)],
    ["Compaction debt", bytes(stats.tree.debt_bytes)],
    ["Compactions running", number(stats.tree.running)],
    ["Writers held back", span(stats.held_back_seconds)],
    ["Memory of the process", bytes(status.resident_bytes)],
  ]);
  list("pins", [
    ["Log", bytes(stats.log.live_bytes)],
    ["Log that devices need", bytes(devices.needed_log_bytes)],
    ["Oldest device there", devices.oldest || "–"],
    ["Snapshots", `${number(stats.snapshots)}, oldest ${span(stats.oldest_snapshot_seconds)}`],
    ["Graves", number(stats.graves.points + stats.graves.ranges)],
    ["Space under graves", bytes(stats.graves.pinned_bytes)],
    ["Departed devices not yet cleared", number(devices.departed)],
    ["Tables held by readers", bytes(stats.tree.held_bytes)],
  ]);
  const rows = stats.tree.levels.map((level, index) => {
    const row = element("tr");
    const head = element("th", String(index));
    head.scope = "row";
    row.append(head, element("td", number(level.tables), "n"), element("td", bytes(level.bytes), "n"), element("td", bytes(level.target_bytes), "n"));
    return row;
  });
  at("levels").replaceChildren(...rows);
}

// Rows are kept while their device is there, so that a focused button stays.
function showDevices(database) {
  const wanted = at("filter").value.toLowerCase();
  const shown = database.devices.filter((it) => it.device.toLowerCase().includes(wanted));
  const body = at("devices");
  const before = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const rows = shown.map((device) => {
    const key = `${database.name}\n${device.device}`;
    const row = before.get(key) || deviceRow(key, database.name, device);
    const texts = [device.moving_to ? `moving to ${device.moving_to}` : String(device.level).toLowerCase(), span(device.age_seconds), number(device.records), bytes(device.bytes)];
    texts.forEach((text, index) => { if (row.cells[index + 1].textContent !== text) row.cells[index + 1].textContent = text; });
    before.delete(key);
    return row;
  });
  before.forEach((row) => row.remove());
  rows.forEach((row, index) => { if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] || null); });
  const all = number(database.device_count);
  at("devices-text").textContent = database.device_count > database.devices.length
    ? `The ${number(database.devices.length)} largest of ${all} devices.`
    : `${number(shown.length)} of ${all} devices.`;
}

function deviceRow(key, database, { device, may_depart }) {
  const row = element("tr");
  row.dataset.key = key;
  const head = element("th", device);
  head.scope = "row";
  row.append(head, element("td"), element("td", "", "n"), element("td", "", "n"), element("td", "", "n"));
  const cell = element("td");
  if (may_depart) {
    const button = element("button", "Depart");
    button.type = "button";
    button.setAttribute("aria-label", `Let ${device} depart`);
    button.addEventListener("click", () => confirmDeparture(database, device));
    cell.append(button);
  }
  row.append(cell);
  return row;
}

function confirmDeparture(database, device) {
  leaving = { database, device };
  at("confirm-text").textContent = `All data of ${device} in ${database} is deleted. It cannot be brought back.`;
  at("confirm-fault").textContent = "";
  at("confirm-yes").disabled = false;
  at("confirm").showModal();
}

async function depart() {
  const { database, device } = leaving;
  at("confirm-yes").disabled = true;
  try {
    await ask(`/_waystation/databases/${encodeURIComponent(database)}/devices/${encodeURIComponent(device)}`, { method: "DELETE" });
    at("confirm").close();
    at("main").focus();
    await refresh();
  } catch (error) {
    at("confirm-fault").textContent = `${device} has not departed: ${error.message}`;
    at("confirm-yes").disabled = false;
  }
}

function showMqtt() {
  const mqtt = status.parts.mqtt;
  at("mqtt").hidden = !mqtt;
  if (!mqtt) return;
  list("mqtt-figures", [
    ["Broker", mqtt.connected ? "connected" : "away"],
    ["Messages received", number(mqtt.received)],
    ["Messages acknowledged", number(mqtt.acknowledged)],
    ["Messages waiting", number(mqtt.waiting)],
    ["Departures", number(mqtt.departures)],
    ["Dead letters", number(mqtt.dead_letters)],
  ]);
}

function showBackups(database) {
  const { backups } = database;
  at("backups").hidden = !backups || !status.rights.admin;
  if (at("backups").hidden) return;
  at("backup").disabled = backups.running;
  at("backup-text").textContent = backups.running
    ? `A backup is being made: ${bytes(backups.done_bytes)} of ${bytes(backups.total_bytes)}.`
    : backups.fault ? `The last backup failed: ${backups.fault}` : `${number(backups.backups.length)} backups.`;
  const line = (backup) => element("li", `${backup.number}: ${when(backup.taken_at * 1e6)}, ${bytes(backup.bytes)}`);
  at("backup-list").replaceChildren(...backups.backups.slice(-5).reverse().map(line));
}

async function backUp() {
  at("backup").disabled = true;
  try {
    await ask(`/_waystation/databases/${encodeURIComponent(chosen().name)}/backups`, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
    await refresh();
  } catch (error) {
    at("backup-text").textContent = `No backup was begun: ${error.message}`;
    at("backup").disabled = false;
  }
}

function show() {
  const faults = status.faults.map((it) => element("li", `${it.part}: ${it.fault}`));
  at("faults").hidden = !faults.length;
  if (at("fault-list").textContent !== faults.map((it) => it.textContent).join("")) at("fault-list").replaceChildren(...faults);
  const events = status.events.map((it) => element("li", `${when(it.time)} ${it.level}: ${it.text}`));
  at("log").replaceChildren(...(events.length ? events : [element("li", "Nothing was logged.")]));
  showDatabases();
  showMqtt();
  const database = chosen();
  if (!database) return;
  showRate(database);
  showFigures(database);
  showDevices(database);
  showBackups(database);
}

function summarise(text) {
  if (at("summary").textContent !== text) at("summary").textContent = text;
}

async function refresh() {
  try {
    status = await ask("/_waystation/status");
    noteRates();
    show();
    const state = status.faults.length ? "has faults" : "works";
    summarise(`Version ${status.version} ${state}, up ${span(status.uptime_seconds)}.`);
  } catch (error) {
    summarise(`No status: ${error.message}. The figures below are old.`);
  }
}

async function follow() {
  if (!document.hidden) await refresh();
  setTimeout(follow, PERIOD_MS);
}

at("database").addEventListener("change", show);
at("filter").addEventListener("input", () => status && show());
at("confirm-no").addEventListener("click", () => at("confirm").close());
at("confirm-yes").addEventListener("click", depart);
at("backup").addEventListener("click", backUp);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
follow();
