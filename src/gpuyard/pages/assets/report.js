// A table that ends at the edge of the screen fades out there, until its end is seen.
for (const box of document.querySelectorAll(".scroll")) {
  const look = () => {
    const end = box.scrollLeft + box.clientWidth >= box.scrollWidth - 2;
    box.classList.toggle("end", end);
    if (end && box.scrollLeft === 0) box.previousElementSibling.hidden = true;
  };
  box.addEventListener("scroll", look, { passive: true });
  addEventListener("resize", look);
  look();
}

// The crosshair: reads the drawn lines back into values. Everything can be read without it.
(() => {
  const charts = [...document.querySelectorAll(".chart[data-x]")].map((chart) => ({
    chart,
    area: chart.querySelector(".area"),
    set: chart.dataset,
    height: chart.querySelector("svg").viewBox.baseVal.height,
    lines: [...chart.querySelectorAll(".line")].map((path) => ({
      name: path.dataset.name,
      colour: path.style.getPropertyValue("--c"),
      points: pointsOf(path.getAttribute("d")),
      steps: path.getAttribute("d").includes("H"),
    })),
  }));

  function pointsOf(d) {
    let x = 0, y = 0;
    return [...d.matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)].map(([, kind, first, second]) => {
      if (kind === "V") y = +first;
      else x = +first;
      if (second !== undefined) y = +second;
      return [x, y];
    });
  }

  function heightAt(line, x) {
    const points = line.points;
    if (x < points[0][0] || x > points[points.length - 1][0]) return null;
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (points[middle][0] <= x) low = middle;
      else high = middle - 1;
    }
    const [x0, y0] = points[low];
    if (line.steps || low === points.length - 1) return y0;
    const [x1, y1] = points[low + 1];
    return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0 || 1);
  }

  function duration(ms) {
    for (const [unit, size, limit] of [["s", 1e3, 6e4], ["min", 6e4, 36e5], ["h", 36e5, 1728e5], ["d", 864e5, Infinity]]) {
      const value = ms / size;
      if (ms < limit) return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
    }
  }

  function label(set, at) {
    const x0 = +set.x0, x1 = +set.x1;
    if (set.x === "log") return `at most ${duration(x0 * (x1 / x0) ** at)}`;
    const ms = x0 + (x1 - x0) * at;
    if (+set.origin) return `${new Date(ms + +set.origin).toISOString().slice(0, 16).replace("T", " ")} UTC`;
    return `after ${duration(ms)}`;
  }

  function say(set, part) {
    if (set.unit === "percent") return `${(100 * part * +set.y1).toFixed(part < 0.1 ? 1 : 0)} %`;
    return Math.round(part * +set.y1).toLocaleString("en");
  }

  function show(each, at) {
    hide(each);
    const cross = document.createElement("div");
    cross.className = "cross";
    cross.style.left = `${100 * at}%`;
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.style[at > 0.55 ? "right" : "left"] = `calc(${100 * (at > 0.55 ? 1 - at : at)}% + 8px)`;
    tip.textContent = label(each.set, at);
    for (const line of each.lines) {
      const y = heightAt(line, 1000 * at);
      if (y === null) continue;
      const row = document.createElement("div"), value = document.createElement("b");
      row.style.setProperty("--c", line.colour);
      row.textContent = line.name;
      value.textContent = say(each.set, 1 - y / each.height);
      row.prepend(value);
      tip.append(row);
    }
    each.area.append(cross, tip);
  }

  function hide(each) {
    for (const old of each.area.querySelectorAll(".cross, .tip")) old.remove();
  }

  for (const each of charts) {
    // Plots over time share their axis, so one pointer shows one moment in all of them.
    const together = charts.filter((other) => other === each || (each.set.x === "time" && other.set.x === "time"));
    each.area.addEventListener("pointermove", (event) => {
      const box = each.area.getBoundingClientRect();
      const at = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
      for (const other of together) show(other, at);
    });
    each.area.addEventListener("pointerleave", () => together.forEach(hide));
  }
})();
