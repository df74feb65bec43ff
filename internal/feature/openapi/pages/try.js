// What sends the requests of the page at /docs/try. Tokens are read from their fields when a request is sent, and
// kept nowhere else.
(() => {
  "use strict";

  const most = 256 * 1024; // bytes of an answer that are shown
  const header = {
    admin: "X-Broker-Admin-Token", channel: "X-Broker-Channel-Token", producer: "X-Broker-Producer-Token",
    consumer: "X-Broker-Consumer-Token",
  };

  // An ID in the path. A browser takes . and .. as ways up the path, however they are encoded, and what decodes a
  // path too early takes a slash as its end.
  function segment(name, id) {
    if (id === "") throw new Error(`The path needs the ${name}.`);
    if (id === "." || id === ".." || /[/\\]/.test(id)) {
      throw new Error(`${id} cannot be the ${name} here: a browser would send the request to another path.`);
    }
    return encodeURIComponent(id);
  }

  // The request of a form: its path with the query, and what fetch takes.
  function request(form) {
    const { method, needs } = form.dataset;
    let path = form.dataset.path;
    const query = new URLSearchParams();
    const headers = new Headers();
    for (const field of form.elements) {
      const [place, name] = field.name.split(":");
      if (place === "path") path = path.replace(`{${name}}`, () => segment(name, field.value));
      if (place === "query" && field.value !== "") query.append(name, field.value);
      if (place === "header" && field.value !== "") headers.set(name, field.value);
    }
    if (new URL(path, location.origin).pathname !== path) throw new Error(`A browser cannot send the path ${path}.`);
    for (const name of needs.split(" ").filter(Boolean)) {
      const token = document.querySelector(`#tokens [name=${name}]`).value;
      if (token !== "") headers.set(header[name], token);
    }
    const { body, media } = form.elements;
    if (body && body.value !== "" && media.value !== "") headers.set("Content-Type", media.value);
    const asked = query.toString();
    return [path + (asked === "" ? "" : `?${asked}`), {
      method, headers, body: body && body.value !== "" ? body.value : undefined, cache: "no-store",
      credentials: "omit", redirect: "manual",
    }];
  }

  // The text of an answer, cut where it is large: nothing more of it is read.
  async function text(answer) {
    if (!answer.body) return "";
    const parts = [];
    const reader = answer.body.getReader();
    for (let size = 0; size <= most;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(parts).text();
      parts.push(value.subarray(0, most - size));
      size += value.length;
    }
    await reader.cancel();
    return await new Blob(parts).text() + `\n\n(cut: the answer has more than ${most / 1024} KiB)`;
  }

  // The code of a problem leads to its line in the list of errors.
  function explain(status, body) {
    let code;
    try { code = JSON.parse(body).code; } catch { return; }
    if (typeof code !== "string") return;
    const link = document.createElement("a");
    link.href = "/docs/errors#" + encodeURIComponent(code);
    link.textContent = code;
    status.append(" · ", link);
  }

  async function send(form) {
    const [go, stop] = form.querySelectorAll("button");
    const status = form.querySelector("[role=status]");
    const shown = form.querySelector("pre");
    const running = new AbortController();
    shown.hidden = true;
    status.textContent = "Waiting for the broker.";
    go.disabled = true;
    stop.hidden = false;
    stop.onclick = () => running.abort();
    const began = performance.now();
    try {
      const [url, options] = request(form);
      const answer = await fetch(url, { ...options, signal: running.signal });
      if (answer.type === "opaqueredirect") {
        status.textContent = "The broker answered with a redirect, which this page does not follow.";
        return;
      }
      const body = await text(answer);
      const lines = [...answer.headers].map(([name, value]) => `${name}: ${value}`);
      shown.textContent = `${options.method} ${url}\n\n${answer.status} ${answer.statusText}\n${lines.join("\n")}\n\n${body}`;
      shown.hidden = false;
      status.textContent = `${answer.status} ${answer.statusText} after ${Math.round(performance.now() - began)} ms`;
      if (!answer.ok) explain(status, body);
    } catch (fault) {
      status.textContent = fault.name === "AbortError" ? "Stopped. The broker may have done it all the same."
        : fault.name === "TypeError" ? `Not sent, or not answered: ${fault.message}.` : fault.message;
    } finally {
      go.disabled = false;
      stop.hidden = true;
      if (form.elements.mean) form.elements.mean.checked = false; // asked each time
    }
  }

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    send(event.target);
  });

  document.addEventListener("change", ({ target }) => {
    if (target.name?.startsWith("path:")) { // the other forms have the same things in their paths
      for (const field of document.getElementsByName(target.name)) if (field.value === "") field.value = target.value;
    }
    const chosen = target.name === "media" && target.selectedOptions?.[0];
    if (chosen) target.form.elements.body.value = chosen.dataset.example;
  });

  function open() {
    const named = document.getElementById(location.hash.slice(1));
    if (named instanceof HTMLDetailsElement) {
      named.open = true;
      named.scrollIntoView();
    }
  }

  document.querySelectorAll("form button").forEach((button) => { button.disabled = false; });
  document.getElementById("scripts").hidden = true;
  addEventListener("hashchange", open);
  open();
})();
