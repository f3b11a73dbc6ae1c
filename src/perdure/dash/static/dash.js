// Swaps in the parts of a page that changed, and keeps the chosen theme. Everything works without it, only not live.
"use strict";

const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;

function isDark() {
  const said = document.documentElement.dataset.theme;
  return said ? said === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

const waiting = new Map();

// A part in which somebody types, reads with the keyboard or selects is left alone until they are done.
function isInUse(part) {
  const selection = getSelection();
  const selects = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return selects || part.contains(document.activeElement);
}

function swap(id, html) {
  const part = document.getElementById(id);
  if (!part || part.innerHTML === html) return;
  if (isInUse(part)) {
    waiting.set(id, html);
    return;
  }
  waiting.delete(id);
  const scrolled = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  part.innerHTML = html;
  part.querySelectorAll(".scroll").forEach((one, place) => (one.scrollLeft = scrolled[place] || 0));
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
    for (const [id, html] of Object.entries(JSON.parse(event.data))) swap(id, html);
  };
  addEventListener("pagehide", () => stream.close());
}

addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme")?.addEventListener("click", switchTheme);
  document.addEventListener("focusout", () =>
    setTimeout(() => waiting.forEach((html, id) => swap(id, html))),
  );
  if (document.body.hasAttribute("data-live")) follow();
});
addEventListener("pageshow", (event) => event.persisted && location.reload());
