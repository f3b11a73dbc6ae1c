// Swaps in the parts of a page that changed, tells how long ago things were, and keeps the chosen theme. Without it every
// page works all the same, only not live.
"use strict";

const THEMES = ["auto", "light", "dark"];
let theme = localStorage.getItem("theme");
if (!THEMES.includes(theme)) theme = "auto";

function showTheme() {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  if (button) button.textContent = "Theme: " + theme;
}

function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  showTheme();
}

showTheme();

// --- times --------------------------------------------------------------------------------------------------------

function ago(seconds) {
  if (seconds < 5) return "just now";
  if (seconds < 60) return Math.floor(seconds) + " s ago";
  return Math.floor(seconds / 60) + " min ago";
}

// A time of the last hour becomes relative; its title keeps the clock time and the zone.
function showAges(root) {
  for (const time of root.querySelectorAll("time")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    time.dataset.clock ??= time.textContent;
    time.textContent = seconds > -5 && seconds < 3600 ? ago(Math.max(0, seconds)) : time.dataset.clock;
  }
}

// --- live parts -----------------------------------------------------------------------------------------------------

const shown = new Map(); // what the server sent for each part, before this script touched it
const waiting = new Map();

// A part in which somebody types, reads with the keyboard, selects or ticks is left alone until they are done.
function isInUse(part) {
  const selection = getSelection();
  const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  const isTyped = [...part.querySelectorAll("input")].some((input) => input.value !== input.defaultValue);
  return selects || isTyped || part.contains(document.activeElement) || part.querySelector("input:checked, details[open]");
}

// Rows must not move under the pointer, nor under the eyes of somebody who has scrolled to them.
function isRead(part) {
  return part.matches(":hover") || part.getBoundingClientRect().top < 0;
}

function rowsOf(root) {
  return new Set([...root.querySelectorAll("[data-row]")].map((row) => row.dataset.row));
}

function newRows(part, html) {
  const known = rowsOf(part);
  const made = document.createElement("template");
  made.innerHTML = html;
  return [...rowsOf(made.content)].filter((row) => !known.has(row)).length;
}

function swap(id, html) {
  waiting.delete(id);
  const part = document.getElementById(id);
  if (!part || shown.get(id) === html) return;
  shown.set(id, html);
  part.innerHTML = html;
  showAges(part);
}

function take(id, html) {
  const part = document.getElementById(id);
  if (!part || shown.get(id) === html) {
    waiting.delete(id);
    if (part) showBar(part, 0);
  } else if (isInUse(part) || (part.dataset.news && isRead(part))) {
    waiting.set(id, html);
    if (part.dataset.news) showBar(part, newRows(part, html));
  } else {
    swap(id, html);
    showBar(part, 0);
  }
}

function showBar(part, count) {
  let bar = part.previousElementSibling;
  if (!bar?.classList.contains("news")) {
    if (!count) return;
    bar = document.createElement("button");
    bar.type = "button";
    bar.className = "news";
    bar.addEventListener("click", () => {
      swap(part.id, waiting.get(part.id) ?? shown.get(part.id));
      bar.remove();
    });
    part.before(bar);
  }
  if (count) bar.textContent = count + " new " + part.dataset.news + (count === 1 ? "" : "s");
  else bar.remove();
}

function settle() {
  setTimeout(() => [...waiting].forEach(([id, html]) => take(id, html)));
}

function say(word) {
  const pulse = document.getElementById("pulse");
  if (pulse && pulse.textContent !== word) {
    pulse.textContent = word;
    pulse.className = word === "Live" ? "on" : "off";
  }
}

function follow() {
  const stream = new EventSource("/live" + location.pathname + location.search);
  stream.onopen = () => say("Live");
  stream.onerror = () => {
    say("Reconnecting");
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 3000);
  };
  stream.onmessage = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) take(id, html);
  };
  addEventListener("pagehide", () => stream.close());
}

// --- copying ----------------------------------------------------------------------------------------------------------

async function copy(event) {
  const code = event.target.closest?.("[data-copy]");
  if (!code || code.closest("a") || !navigator.clipboard) return;
  await navigator.clipboard.writeText(code.dataset.copy);
  code.classList.add("copied");
  setTimeout(() => code.classList.remove("copied"), 1200);
}

addEventListener("DOMContentLoaded", () => {
  showTheme();
  for (const part of document.querySelectorAll(".part")) shown.set(part.id, part.innerHTML);
  showAges(document);
  setInterval(() => showAges(document), 1000);
  document.getElementById("theme")?.addEventListener("click", nextTheme);
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  document.addEventListener("click", copy);
  for (const event of ["focusout", "mouseout", "change", "toggle"])
    document.addEventListener(event, settle, { passive: true, capture: event === "toggle" });
  if (document.body.hasAttribute("data-live")) follow();
});
addEventListener("pageshow", (event) => event.persisted && location.reload());
