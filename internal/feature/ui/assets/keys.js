// What a page of the dashboard can do where scripts run: keys, times in the zone of the reader, and a word where
// the page is not live. htmx brings the page up to date; without scripts the page is the same, and stands still.
(() => {
  "use strict";

  const again = 5000; // ms between two looks at whether the page is live
  const longest = 70000; // ms after which a first request that got no answer counts as lost; htmx ends it after 60 s
  const places = {
    o: "/ui/", h: "/ui/channels", c: "/ui/consumers", d: "/ui/dlq", s: "/ui/scheduled", b: "/ui/bulks",
    r: "/ui/replays", n: "/ui/brokers", p: "/ui/publish",
  };
  let paused = false;
  let open = false; // the stream is there
  let asked = 0; // until when the answer to the first request is waited for
  let going = 0; // until when a key after g says where to go

  const find = (selector) => document.querySelector(selector);

  function say(text) {
    const live = find("#live");
    if (live) live.textContent = text;
  }

  const away = () => say(" · the broker does not answer: this page stands still");

  // Times in the zone of the reader. The title of each keeps UTC.
  const two = (n) => String(n).padStart(2, "0");
  const written = /(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)?/;

  function local(element) {
    const at = new Date(element.dateTime);
    if (isNaN(at) || element.children.length > 0) return;
    element.textContent = element.textContent.replace(written, (_, day, seconds) =>
      (day ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` : "") +
      `${two(at.getHours())}:${two(at.getMinutes())}` + (seconds ? `:${two(at.getSeconds())}` : ""));
  }

  function translate() {
    document.querySelectorAll("time[datetime]").forEach(local);
    const zone = find("#zone");
    if (zone) zone.textContent = "times in " + Intl.DateTimeFormat().resolvedOptions().timeZone;
  }

  // The stream. Each answer ends after one page, and htmx asks again; what never began is begun here.
  const live = () => document.body.hasAttribute("hx-sse:connect");

  function connect() {
    if (!live() || open || paused || document.hidden || Date.now() < asked) return;
    asked = Date.now() + longest;
    htmx.trigger(document.body, "live");
  }

  document.addEventListener("htmx:sse:before:connection", (e) => {
    open = !paused;
    if (paused) e.preventDefault();
  });
  document.addEventListener("htmx:sse:close", () => { open = false; asked = 0; });
  document.addEventListener("htmx:sse:error", away);
  document.addEventListener("htmx:error", () => { asked = 0; away(); });
  document.addEventListener("htmx:response:error", () => { asked = 0; away(); });
  document.addEventListener("htmx:after:swap", translate);
  document.addEventListener("penstock:login", () => location.reload());

  function pause() {
    if (!live()) return;
    if (paused) {
      location.reload();
      return;
    }
    paused = true;
    say(" · paused: p goes on");
  }

  // Rows are the first links of the rows of tables and lists.
  function move(step) {
    const rows = [...document.querySelectorAll("main tbody tr, main .plain li, main .life li")]
      .map((row) => row.querySelector("a")).filter((link) => link);
    const at = rows.indexOf(document.activeElement);
    const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    if (next) next.focus();
  }

  const keys = {
    "/": () => find("input[type=search]")?.focus(),
    "?": () => { const help = find("#keys"); if (help.open) help.close(); else help.showModal(); },
    j: () => move(1),
    k: () => move(-1),
    r: () => location.reload(),
    p: pause,
    g: () => { going = Date.now() + 2000; },
  };

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
    if (e.target.closest("input, textarea, select")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const to = Date.now() < going ? places[e.key] : undefined;
    going = 0;
    if (to) {
      e.preventDefault();
      location.assign(to);
    } else if (Object.hasOwn(keys, e.key)) {
      e.preventDefault();
      keys[e.key]();
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    translate();
    setInterval(connect, again);
  });
})();
