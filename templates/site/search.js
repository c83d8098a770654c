"use strict";
const box = document.getElementById("q");
const entries = Array.from(document.getElementById("results").children, (item) => [item, item.textContent.toLowerCase()]);
function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const [item, text] of entries) {
    item.hidden = !words.every((word) => text.includes(word));
    count += item.hidden ? 0 : 1;
  }
  document.getElementById("found").textContent = count.toLocaleString("en") + " of " + entries.length.toLocaleString("en") + " entries";
}
box.value = new URLSearchParams(location.search).get("q") || "";
box.addEventListener("input", show);
show();
