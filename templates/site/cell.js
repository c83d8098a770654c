"use strict";
const panes = document.querySelector(".panes");
const boxes = Array.from(document.querySelectorAll(".shows input"));
const said = document.getElementById("chosen");
const show = () => boxes.forEach((box) => { document.getElementById("pane-" + box.value).hidden = !box.checked; });
const center = (line) => {
  const pane = line.closest("pre");
  pane.scrollTop += line.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 3;
};
function choose(line) {
  const at = line.dataset.l;
  panes.querySelectorAll(".on").forEach((each) => each.classList.remove("on"));
  const same = panes.querySelectorAll('[data-l="' + CSS.escape(at) + '"]');
  same.forEach((each) => each.classList.add("on"));
  for (const pane of panes.querySelectorAll("pre")) {
    const first = pane.querySelector(".on");
    if (first && pane !== line.closest("pre")) center(first);
  }
  said.textContent = "line " + at + " of the source: " + same.length.toLocaleString("en") + " lines";
}
panes.addEventListener("click", (event) => {
  const line = event.target.closest("[data-l]");
  if (!line || String(getSelection())) return;
  event.preventDefault();
  choose(line);
});
let spill = -1;
document.getElementById("next")?.addEventListener("click", () => {
  const marks = document.querySelectorAll("#pane-sass mark");
  if (!marks.length) return;
  spill = (spill + 1) % marks.length;
  const line = marks[spill].closest("[data-l]");
  if (line) choose(line);
  center(marks[spill]);
  said.textContent = "local access " + (spill + 1) + " of " + marks.length + (line ? ", from line " + line.dataset.l + " of the source" : "");
});
document.querySelectorAll(".hint").forEach((each) => { each.hidden = false; });
const counts = Array.from(document.querySelectorAll("#pane-sass i")).filter((each) => each.textContent);
document.querySelectorAll(".plot svg").forEach((curve) => curve.addEventListener("click", (event) => {
  const box = curve.getBoundingClientRect();
  const part = Math.min(0.999999, Math.max(0, (event.clientX - box.left) / box.width));
  const at = Math.floor(part * curve.dataset.n);
  const count = counts[Number(curve.dataset.first) + at];
  const words = "instruction " + (at + 1).toLocaleString("en");
  if (!count) { said.textContent = words + " is not shown"; return; }
  panes.querySelectorAll(".on").forEach((each) => each.classList.remove("on"));
  count.classList.add("on");
  center(count);
  count.closest("section").scrollIntoView({ block: "nearest" });
  said.textContent = words + ": " + count.textContent + " live registers";
}));
boxes.forEach((box) => box.addEventListener("change", show));
document.querySelector(".shows").hidden = false;
show();
