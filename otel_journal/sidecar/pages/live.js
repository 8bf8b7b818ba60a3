// Follows the journal and renews <main>; the page is complete without it.
"use strict";
(() => {
  const PAUSE_MS = 500; // at most two renewals a second
  const status = document.getElementById("live");
  const main = () => document.querySelector("main");
  const say = (text) => { if (status && status.textContent !== text) status.textContent = text; };
  let waiting = false, busy = false, again = false;

  const key = (one) => one && (one.id || one.getAttribute("href") || one.getAttribute("name"));
  const find = (root, wanted) => wanted && [...root.querySelectorAll("a, summary, input, select, button")]
    .find((one) => key(one) === wanted);
  const typing = () => /^(INPUT|SELECT)$/.test(document.activeElement.tagName);

  async function renew() {
    waiting = false;
    if (typing()) { wait(); return; } // not under somebody's fingers
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return; }
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      if (!fresh || typing()) return;
      const old = main(), focus = old.contains(document.activeElement) && key(document.activeElement);
      const [x, y] = [scrollX, scrollY];
      for (const one of old.querySelectorAll("details[open]")) {
        const same = one.id && fresh.querySelector("#" + CSS.escape(one.id));
        if (same) same.open = true;
      }
      const boxes = [...old.querySelectorAll(".card")].map((one) => one.scrollLeft);
      old.replaceWith(fresh);
      document.title = page.title;
      [...fresh.querySelectorAll(".card")].forEach((one, at) => { one.scrollLeft = boxes[at] || 0; });
      const target = find(fresh, focus);
      if (target) target.focus({ preventScroll: true });
      scrollTo(x, y);
    } catch { // the stream says when the sidecar is back
    } finally {
      busy = false;
      if (again) { again = false; wait(); }
    }
  }

  function wait() {
    if (busy) again = true;
    else if (!waiting) { waiting = true; setTimeout(renew, PAUSE_MS); }
  }

  const address = main() && main().dataset.stream;
  if (address && "EventSource" in window) {
    const stream = new EventSource(address);
    stream.onopen = () => say("Live");
    stream.onerror = () => say("Not live; connecting again");
    stream.onmessage = wait;
    stream.addEventListener("reset", wait);
    addEventListener("pagehide", () => stream.close());
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }

  addEventListener("keydown", (event) => {
    const step = { j: 1, k: -1 }[event.key];
    if (!step || typing() || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...main().querySelectorAll("[data-row] a[id], [data-row] summary")];
    const at = rows.indexOf(document.activeElement);
    const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    if (next) { next.focus(); event.preventDefault(); }
  });
})();
