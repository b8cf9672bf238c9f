// Improves pages that are complete without it: counts down, moves through lists by j and k, and sends by Ctrl+Enter.
"use strict";

(() => {
  const typing = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;

  function countDown() {
    for (const time of document.querySelectorAll("time[data-due]")) {
      const seconds = Math.floor((Date.parse(time.dataset.due) - Date.now()) / 1000);
      if (seconds <= 0 && time.dataset.over === undefined) {
        time.dataset.over = "";
        document.body.dispatchEvent(new Event("due"));
      }
      const left = Math.max(seconds, 0);
      const hours = Math.floor(left / 3600);
      const minutes = String(Math.floor((left % 3600) / 60)).padStart(2, "0");
      const text = hours >= 48 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours} h ${minutes} min`;
      if (time.textContent !== text) time.textContent = text;
    }
  }

  function move(by) {
    const items = [...document.querySelectorAll("[data-keys] a.headline, details[name=action] > summary")];
    if (items.length === 0) return;
    const at = items.indexOf(document.activeElement);
    items[at < 0 ? 0 : Math.min(Math.max(at + by, 0), items.length - 1)].focus();
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.target.closest("form[data-answer]")?.requestSubmit();
    } else if (!typing(event.target) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key === "j") move(1);
      if (event.key === "k") move(-1);
    }
  });

  countDown();
  setInterval(countDown, 1000);
})();
