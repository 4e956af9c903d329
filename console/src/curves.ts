// Curves of a job as they are drawn: which come first, what they are called, and what their points stand for.

import { words } from "./format";
import type { CurveReply } from "./wire";

/** What was seen at a time, and since when it stands for what was; `first`: after a hole, or the very first. */
export type Point = { since: number; at: number; value: number; first: boolean };

/** A step that is so many times as long as usual is a hole: nobody looked then. */
const GAP = 2.5;
/** A lone point stands for so long at most. */
const ALONE_MS = 60_000;
const TITLES: Record<string, string> = {
  gpu_busy: "GPU",
  gpu_busy_estimated: "GPU",
  gpu_memory: "GPU memory",
  cpu: "CPU",
  memory: "Memory",
  memory_peak: "Memory at most",
  disk_read: "Read",
  disk_written: "Written",
  energy: "Power",
  io_stalled: "Waited for disks",
  memory_stalled: "Waited for memory",
};

/** Signals that are drawn even where nothing happened: these come first, as in `yard show`. */
const ALWAYS = 8;

/** From top to bottom. What nobody saw is left out, and of the lesser ones what was always 0. */
export function ordered(curves: CurveReply[], started: number): CurveReply[] {
  const order = Object.keys(TITLES);
  const place = ({ signal }: CurveReply) => (order.includes(signal) ? order.indexOf(signal) : order.length);
  return curves
    .filter((curve) => points(curve, started).some(({ value }) => place(curve) < ALWAYS || value > 0))
    .toSorted((a, b) => place(a) - place(b) || (a.signal < b.signal ? -1 : 1));
}

export function titleOf(signal: string): string {
  const name = words(signal);
  return TITLES[signal] ?? name[0].toUpperCase() + name.slice(1);
}

/** The points of a curve; of a counter, by how much it rose in a second. Its rise over a hole is in none of them. */
export function points(curve: CurveReply, started: number): Point[] {
  const { times_ms: times, values } = curve;
  const steps = times.slice(1).map((at, index) => at - times[index]).sort((a, b) => a - b);
  const usual = steps[steps.length >> 1] ?? ALONE_MS;
  const found: Point[] = [];
  let before = times.length ? Math.max(started, times[0] - usual) : 0;
  times.forEach((at, index) => {
    const value = values[index];
    const hole = at - before > GAP * usual;
    if (value !== null && (!curve.counts || (at > before && !hole))) {
      const last = found.at(-1);
      const first = !last || at - last.at > GAP * usual;
      found.push({ since: hole ? at - usual : before, at, value: curve.counts ? (1000 * value) / (at - before) : value, first });
    }
    before = at;
  });
  return found;
}

/** A value as people say it: parts of a hundred, cores, and sizes in the unit that fits. */
export function said(curve: CurveReply, value: number): string {
  const short = (number: number) => number.toLocaleString(undefined, { maximumSignificantDigits: number < 100 ? 2 : 3 });
  if (curve.unit === "‰") return `${(value / 10).toFixed(0)} %`;
  if (curve.counts && curve.unit === "mJ") return `${short(value / 1000)} W`;
  if (curve.signal.endsWith("_stalled")) return `${(value / 10).toFixed(0)} % of the time`;
  if (curve.counts && curve.unit === "ms") return `${short(value / 1000)} ${value === 1000 ? "core" : "cores"}`;
  const a = curve.counts ? "/s" : "";
  const sizes = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = sizes.indexOf(curve.unit);
  if (at < 0) return `${short(value)} ${curve.unit}${a}`;
  while (value >= 10_240 && at < sizes.length - 1) [value, at] = [value / 1024, at + 1];
  return `${short(value)} ${sizes[at]}${a}`;
}
