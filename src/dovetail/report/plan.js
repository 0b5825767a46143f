"use strict";
(function () {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const stage = document.getElementById("stage");
  const tip = document.getElementById("tip");
  const picture = stage.querySelector("svg");
  const MOST = 14;

  // A native title would cover what the script shows.
  for (const title of picture.querySelectorAll("title")) title.remove();

  function line(kind, text) {
    const element = document.createElement(kind === "b" ? "b" : "span");
    if (kind !== "b") element.className = kind;
    element.textContent = text;
    tip.append(element);
    return element;
  }

  function stepAt(event) {
    const box = picture.getBoundingClientRect();
    const x = (event.clientX - box.left) * picture.viewBox.baseVal.width / box.width;
    const step = Math.floor((x - facts.left) / (facts.right - facts.left) * facts.steps.length);
    return Math.max(0, Math.min(facts.steps.length - 1, step));
  }

  function piece(buffer, index, chosen) {
    const [name, type, size, first, hue] = buffer.pieces[index];
    const row = line(index === chosen ? "row now" : "row", `${name}  ${type}  ${size}, from step ${first}`);
    const swatch = document.createElement("i");
    swatch.style.background = `hsl(${hue} 60% 60%)`;
    row.prepend(swatch);
  }

  function pieces(buffer, chosen) {
    const count = buffer.pieces.length;
    const start = Math.max(0, Math.min(chosen - MOST / 2, count - MOST));
    if (start) line("row", `${start} before`);
    for (const index of [...buffer.pieces.keys()].slice(start, start + MOST)) piece(buffer, index, chosen);
    const rest = count - start - MOST;
    if (Math.sign(rest) === 1) line("row", `and ${rest} more`);
  }

  function show(event) {
    const part = event.target.closest("[data-buffer]");
    if (!part) return hide();
    const buffer = facts.buffers[part.dataset.buffer];
    tip.replaceChildren();
    line("b", buffer.shared ? `${buffer.pieces.length} tensors in one buffer: ${buffer.name}` : buffer.name);
    line("span", `${buffer.size} from address ${buffer.offset}, steps ${buffer.first} to ${buffer.last}`);
    pieces(buffer, Number(event.target.dataset.piece || 0));
    if (buffer.views.length) line("row", `also read as ${buffer.views.slice(0, 6).join(", ")}`);
    const step = stepAt(event);
    const [label, kernel, time] = facts.steps[step];
    line("span", `at step ${step}: ${label} (${kernel}) ${time}`);
    place(event);
  }

  function place(event) {
    tip.style.display = "block";
    const box = stage.getBoundingClientRect();
    const x = event.clientX - box.left + 16;
    tip.style.left = `${Math.max(0, Math.min(x, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${event.clientY - box.top + 18}px`;
  }

  function hide() {
    tip.style.display = "none";
  }

  picture.addEventListener("mousemove", show);
  picture.addEventListener("mouseleave", hide);
})();
