"use strict";
// Tables are sorted by a click on a heading and filtered by words; commands and code are copied.
const number = (text) => /^-?[\d,.]+\s?%?( |\/|,|$)/.test(text) ? parseFloat(text.replace(/,(?=\d{3})/g, "")) : NaN;
const keyOf = (row, index) => row.children[index]?.textContent.trim() ?? "";
function sort(table, head, index) {
  const down = head.getAttribute("aria-sort") === "ascending";
  table.querySelectorAll("th[aria-sort]").forEach((each) => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [row, keyOf(row, index)]);
  rows.sort(([, a], [, b]) => {
    const x = number(a), y = number(b);
    if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
    return (down ? -1 : 1) * (isNaN(x) ? a.localeCompare(b, "en", { numeric: true }) : x - y);
  });
  body.append(...rows.map(([row]) => row));
}
document.querySelectorAll("table:not(.plain)").forEach((table) => {
  const rows = Array.from(table.tBodies[0]?.rows ?? []);
  if (rows.length < 2) return;
  Array.from(table.tHead?.rows[0]?.cells ?? [], (head, index) => {
    const button = document.createElement("button");
    button.className = "sort";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, head, index));
    head.append(button);
  });
  if (rows.length < 8) return;
  const box = document.createElement("input"), label = document.createElement("label"), count = document.createElement("span");
  box.type = "search";
  count.setAttribute("role", "status");
  label.className = "filter";
  label.append("Filter ", box, " ", count);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    // The words of a square's title count, too.
    const text = (row) => (row.textContent + Array.from(row.querySelectorAll("[title]"), (e) => e.title).join(" ")).toLowerCase();
    rows.forEach((row) => { const all = text(row); row.hidden = !words.every((word) => all.includes(word)); });
    count.textContent = rows.filter((row) => !row.hidden).length.toLocaleString("en") + " of " + rows.length.toLocaleString("en");
  });
  (table.closest(".scroll") ?? table).before(label);
});
// What a key gives the focus is wholly seen: not cut off, nor behind the headings of rows, which stay.
document.addEventListener("focusin", ({ target }) => {
  const scroll = target.parentElement.closest(".scroll");
  if (!scroll || !target.matches(":focus-visible")) return;
  scroll.style.scrollPaddingLeft = (scroll.querySelector(".squares tbody th")?.offsetWidth ?? 0) + "px";
  target.scrollIntoView({ block: "nearest", inline: "nearest" });
});
document.querySelectorAll("code.copy, pre").forEach((code) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    // Numbers beside the lines are no part of them.
    const copy = code.cloneNode(true);
    copy.querySelectorAll("i").forEach((each) => each.remove());
    try {
      await navigator.clipboard.writeText(copy.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  code.matches("pre") ? code.before(button) : code.after(button);
});
