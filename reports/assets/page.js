"use strict";
(async () => {
  const item = JSON.parse(document.getElementById("timeline-item").textContent);
  window.traceviewLast = await traceviewTimeline(document.getElementById("timeline"), item);
  document.documentElement.dataset.ready = "";
})();
